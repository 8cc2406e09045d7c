// Batch normalization.
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/batch_norm_update_stats_ops.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward_ops.h>
#include <ATen/ops/rsqrt.h>
#include <torch/library.h>

#include <array>
#include <tuple>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/tensor.h"
#include "kernels/norm_batch.h"
#include "kernels/norm_batch_backward.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using ThreeTensors = std::tuple<Tensor, Tensor, Tensor>;

// A tensor of one value per channel, shaped to broadcast over the input.
Tensor per_channel(const Tensor& values, const Tensor& input) {
  at::DimVector shape(input.dim(), 1);
  shape[1] = input.size(1);
  return values.view(shape);
}

struct Stats {
  Tensor mean;
  Tensor var; // of the batch, without correction
};

Stats stats_of(const Tensor& input) {
  const Stats stats = {empty_webgpu({input.size(1)}, at::kFloat, input.device()),
                       empty_webgpu({input.size(1)}, at::kFloat, input.device())};
  moments(per_channel(stats.var, input), per_channel(stats.mean, input), input);
  return stats;
}

float n_per_channel(const Tensor& input) {
  return static_cast<float>(input.numel()) /
         static_cast<float>(std::max<int64_t>(input.size(1), 1));
}

// Raises unless `values` is undefined or has one value per channel.
void check_per_channel(const Tensor& values, const char* name, const Tensor& input) {
  TORCH_CHECK(!values.defined() || (values.dim() == 1 && values.size(0) == input.size(1)), name,
              " should contain ", input.size(1), " elements not ", values.numel());
}

// Computes invstd and, as rows of the result, scale and shift; updates running statistics if given.
Tensor scales_of(const Tensor& input, const Stats& stats, const Tensor& invstd,
                 const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                 const Tensor& running_var, double momentum, double eps) {
  const int64_t channels = input.size(1);
  const Tensor scales = empty_webgpu({2, channels}, at::kFloat, input.device());
  if (channels == 0) {
    return scales;
  }
  check_per_channel(stats.mean, "running_mean", input);
  check_per_channel(stats.var, "running_var", input);
  check_per_channel(weight, "weight", input);
  check_per_channel(bias, "bias", input);
  check_per_channel(running_mean, "running_mean", input);
  check_per_channel(running_var, "running_var", input);
  const float n = n_per_channel(input);
  kernels::norm_batch::Launch launch("native_batch_norm");
  launch.invstd(invstd).scales(scales).mean(stats.mean).var(stats.var);
  if (weight.defined()) {
    launch.weight(weight);
  }
  if (bias.defined()) {
    launch.bias(bias);
  }
  if (running_mean.defined()) {
    launch.running_mean(running_mean);
  }
  if (running_var.defined()) {
    launch.running_var(running_var);
  }
  launch.run({.channels = static_cast<uint32_t>(channels),
              .eps = static_cast<float>(eps),
              .momentum = static_cast<float>(momentum),
              .unbias = n / (n - 1)});
  return scales;
}

at::TensorIterator channel_iterator(const Tensor& out, std::initializer_list<Tensor> inputs) {
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).resize_outputs(false).add_output(out);
  for (const Tensor& input : inputs) {
    config.add_owned_const_input(input);
  }
  return config.build();
}

void normalize(const Tensor& out, const Tensor& input, const Tensor& scales) {
  auto iter =
      channel_iterator(out, {input, per_channel(scales[0], input), per_channel(scales[1], input)});
  const DType type = *native_dtype(input.scalar_type());
  pointwise(iter, PointwiseOp::scale_shift,
            {DType::kF32, {*native_dtype(out.scalar_type()), type, DType::kF32, DType::kF32}});
}

// An empty output of the input's memory format. The CPU's forward kernel uses is_contiguous(),
// which ignores the strides of dimensions of size 1. Its backward kernel uses
// suggest_memory_format(), which reads them.
Tensor empty_of_format(const Tensor& input) {
  if (!input.is_contiguous()) {
    for (const auto format : {at::MemoryFormat::ChannelsLast, at::MemoryFormat::ChannelsLast3d}) {
      if (input.is_contiguous(format)) {
        return at::empty_like(input, format);
      }
    }
  }
  return at::empty_like(input, input.suggest_memory_format());
}

// Copies to and from the CPU here, because the schemas do not mark the running statistics as
// written: the generic fallback would not copy them back.
ThreeTensors batch_norm_on_cpu(const Tensor& input, const OptionalTensor& weight,
                               const OptionalTensor& bias, const Tensor& running_mean,
                               const Tensor& running_var, bool training, double momentum,
                               double eps) {
  note_fallback("aten::native_batch_norm");
  auto host = [](const Tensor& tensor) { return tensor.defined() ? tensor.cpu() : tensor; };
  const Tensor host_mean = host(running_mean);
  const Tensor host_var = host(running_var);
  auto [out, mean, invstd] =
      at::native_batch_norm(input.cpu(), host(value_of(weight)), host(value_of(bias)), host_mean,
                            host_var, training, momentum, eps);
  if (training && running_mean.defined()) {
    running_mean.copy_(host_mean);
  }
  if (training && running_var.defined()) {
    running_var.copy_(host_var);
  }
  const c10::Device device = input.device();
  return {out.to(device), mean.to(device), invstd.to(device)};
}

ThreeTensors batch_norm(const Tensor& input, const OptionalTensor& weight,
                        const OptionalTensor& bias, const OptionalTensor& running_mean,
                        const OptionalTensor& running_var, bool training, double momentum,
                        double eps) {
  const Tensor given_mean = value_of(running_mean);
  const Tensor given_var = value_of(running_var);
  check_same_device("native_batch_norm", {{input, "input"},
                                          {value_of(weight), "weight"},
                                          {value_of(bias), "bias"},
                                          {given_mean, "running_mean"},
                                          {given_var, "running_var"}});
  if (!are_native_floats({input, value_of(weight), value_of(bias), given_mean, given_var})) {
    return batch_norm_on_cpu(input, weight, bias, given_mean, given_var, training, momentum, eps);
  }
  TORCH_CHECK(input.dim() >= 2, "native_batch_norm(): expected 2D or more, but got input of size ",
              input.sizes());
  TORCH_CHECK(training || (given_mean.defined() && given_var.defined()),
              "running_mean and running_var must be defined in evaluation mode");
  const Tensor out = empty_of_format(input);
  const Tensor invstd = empty_webgpu({input.size(1)}, at::kFloat, input.device());
  if (!training) {
    const Tensor scales = scales_of(input, {given_mean.contiguous(), given_var.contiguous()},
                                    invstd, packed(weight), packed(bias), {}, {}, 0, eps);
    normalize(out, input, scales);
    const auto none = [&] { return empty_webgpu({0}, at::kFloat, input.device()); };
    return {out, none(), none()};
  }
  const Stats stats = stats_of(input);
  const Tensor mean_update = packed(running_mean);
  const Tensor var_update = packed(running_var);
  const Tensor scales = scales_of(input, stats, invstd, packed(weight), packed(bias), mean_update,
                                  var_update, momentum, eps);
  if (mean_update.defined() && !mean_update.is_same(given_mean)) {
    given_mean.copy_(mean_update);
  }
  if (var_update.defined() && !var_update.is_same(given_var)) {
    given_var.copy_(var_update);
  }
  normalize(out, input, scales);
  return {out, stats.mean, invstd};
}

// Copies results into the tensors of an out= form.
std::tuple<Tensor&, Tensor&, Tensor&> into(const ThreeTensors& results, Tensor& out, Tensor& mean,
                                           Tensor& invstd) {
  const auto& [result, saved_mean, saved_invstd] = results;
  check_same_device(
      "native_batch_norm_out",
      {{out, "out"}, {mean, "save_mean"}, {invstd, "save_invstd"}, {result, "input"}});
  check_dtype(out, result.scalar_type());
  check_dtype(mean, saved_mean.scalar_type());
  check_dtype(invstd, saved_invstd.scalar_type());
  out.resize_(result.sizes()).copy_(result);
  mean.resize_(saved_mean.sizes()).copy_(saved_mean);
  invstd.resize_(saved_invstd.sizes()).copy_(saved_invstd);
  return {out, mean, invstd};
}

std::tuple<Tensor&, Tensor&, Tensor&>
batch_norm_out(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
               const OptionalTensor& running_mean, const OptionalTensor& running_var, bool training,
               double momentum, double eps, Tensor& out, Tensor& mean, Tensor& invstd) {
  return into(batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps),
              out, mean, invstd);
}

ThreeTensors batch_norm_legit(const Tensor& input, const OptionalTensor& weight,
                              const OptionalTensor& bias, Tensor& running_mean, Tensor& running_var,
                              bool training, double momentum, double eps) {
  return batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps);
}

std::tuple<Tensor&, Tensor&, Tensor&>
batch_norm_legit_out(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                     Tensor& running_mean, Tensor& running_var, bool training, double momentum,
                     double eps, Tensor& out, Tensor& mean, Tensor& invstd) {
  return into(batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps),
              out, mean, invstd);
}

ThreeTensors batch_norm_no_stats(const Tensor& input, const OptionalTensor& weight,
                                 const OptionalTensor& bias, bool training, double momentum,
                                 double eps) {
  return batch_norm(input, weight, bias, {}, {}, training, momentum, eps);
}

std::tuple<Tensor&, Tensor&, Tensor&>
batch_norm_no_stats_out(const Tensor& input, const OptionalTensor& weight,
                        const OptionalTensor& bias, bool training, double momentum, double eps,
                        Tensor& out, Tensor& mean, Tensor& invstd) {
  return into(batch_norm(input, weight, bias, {}, {}, training, momentum, eps), out, mean, invstd);
}

std::tuple<Tensor, Tensor, Tensor, Tensor>
batch_norm_with_update(const Tensor& input, const OptionalTensor& weight,
                       const OptionalTensor& bias, Tensor& running_mean, Tensor& running_var,
                       double momentum, double eps) {
  auto [out, mean, invstd] =
      batch_norm(input, weight, bias, running_mean, running_var, true, momentum, eps);
  return {out, mean, invstd, empty_webgpu({0}, at::kByte, input.device())};
}

std::tuple<Tensor, Tensor> batch_norm_update_stats(const Tensor& input,
                                                   const OptionalTensor& running_mean,
                                                   const OptionalTensor& running_var,
                                                   double momentum) {
  check_same_device("batch_norm_update_stats", {{input, "input"},
                                                {value_of(running_mean), "running_mean"},
                                                {value_of(running_var), "running_var"}});
  if (!are_native_floats({input, value_of(running_mean), value_of(running_var)})) {
    return call_cpu_fallback<at::_ops::batch_norm_update_stats>::call(input, running_mean,
                                                                      running_var, momentum);
  }
  const Stats stats = stats_of(input);
  const Tensor invstd = empty_webgpu({input.size(1)}, at::kFloat, input.device());
  const Tensor mean_update = packed(running_mean);
  const Tensor var_update = packed(running_var);
  scales_of(input, stats, invstd, {}, {}, mean_update, var_update, momentum, 0);
  if (mean_update.defined() && !mean_update.is_same(*running_mean)) {
    running_mean->copy_(mean_update);
  }
  if (var_update.defined() && !var_update.is_same(*running_var)) {
    running_var->copy_(var_update);
  }
  return {stats.mean, stats.var};
}

ThreeTensors batch_norm_backward(const Tensor& gradient, const Tensor& input,
                                 const OptionalTensor& weight_opt,
                                 const OptionalTensor& running_mean,
                                 const OptionalTensor& running_var, const OptionalTensor& save_mean,
                                 const OptionalTensor& save_invstd, bool train, double eps,
                                 std::array<bool, 3> mask) {
  check_same_device("native_batch_norm_backward", {{gradient, "grad_out"},
                                                   {input, "input"},
                                                   {value_of(weight_opt), "weight"},
                                                   {value_of(running_mean), "running_mean"},
                                                   {value_of(running_var), "running_var"},
                                                   {value_of(save_mean), "save_mean"},
                                                   {value_of(save_invstd), "save_invstd"}});
  if (!are_native_floats({input, gradient, value_of(weight_opt), value_of(running_mean)})) {
    return call_cpu_fallback<at::_ops::native_batch_norm_backward>::call(
        gradient, input, weight_opt, running_mean, running_var, save_mean, save_invstd, train, eps,
        mask);
  }
  const Tensor weight = packed(weight_opt);
  TORCH_CHECK(input.dim() >= 2 && gradient.sizes() == input.sizes(),
              "native_batch_norm_backward(): grad_out of size ", gradient.sizes(),
              " does not match an input of size ", input.sizes());
  const Tensor& given_mean = value_of(train ? save_mean : running_mean);
  const Tensor& given_spread = value_of(train ? save_invstd : running_var);
  TORCH_CHECK(given_mean.defined() && given_spread.defined(),
              "native_batch_norm_backward(): expected ",
              train ? "save_mean and save_invstd" : "running_mean and running_var",
              " to be defined when train=", train ? "True" : "False");
  check_per_channel(given_mean, train ? "save_mean" : "running_mean", input);
  check_per_channel(given_spread, train ? "save_invstd" : "running_var", input);
  check_per_channel(weight, "weight", input);
  const int64_t channels = input.size(1);
  const Tensor mean = train ? save_mean->contiguous() : running_mean->to(at::kFloat).contiguous();
  const Tensor invstd = train ? save_invstd->contiguous()
                              : at::rsqrt(at::add(running_var->to(at::kFloat), eps)).contiguous();
  const at::ScalarType type = weight.defined() ? weight.scalar_type() : input.scalar_type();
  const Tensor sum = empty_webgpu({channels}, at::kFloat, input.device());
  const Tensor product = empty_webgpu({channels}, at::kFloat, input.device());
  normalized_sums(per_channel(sum, input), per_channel(product, input), gradient, input,
                  per_channel(mean, input), per_channel(invstd, input));
  Tensor grad_input;
  if (mask[0]) {
    grad_input = at::empty_like(input, input.suggest_memory_format());
    const Tensor scales = empty_webgpu({3, channels}, at::kFloat, input.device());
    if (input.numel() != 0) {
      kernels::norm_batch_backward::Launch launch("native_batch_norm_backward");
      launch.scales(scales).sum(sum).product(product).mean(mean).invstd(invstd);
      if (weight.defined()) {
        launch.weight(weight);
      }
      launch.run({.channels = static_cast<uint32_t>(channels),
                  .per_element = train ? 1.0f / n_per_channel(input) : 0.0f});
      auto iter = channel_iterator(grad_input,
                                   {gradient, input, per_channel(scales[0], input),
                                    per_channel(scales[1], input), per_channel(scales[2], input)});
      const DType dtype = *native_dtype(input.scalar_type());
      pointwise(iter, PointwiseOp::scale_two_shift,
                {DType::kF32,
                 {dtype, *native_dtype(gradient.scalar_type()), dtype, DType::kF32, DType::kF32,
                  DType::kF32}});
    }
  }
  return {grad_input, mask[1] ? product.to(type) : Tensor(), mask[2] ? sum.to(type) : Tensor()};
}

ThreeTensors new_batch_norm_backward(const Tensor& gradient, const Tensor& input,
                                     const Tensor& weight, const OptionalTensor& running_mean,
                                     const OptionalTensor& running_var,
                                     const OptionalTensor& save_mean,
                                     const OptionalTensor& save_invstd, bool update, double eps,
                                     std::array<bool, 3> mask, const Tensor& /*reserve*/) {
  return batch_norm_backward(gradient, input, weight, running_mean, running_var, save_mean,
                             save_invstd, update, eps, mask);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_batch_norm", batch_norm);
  m.impl("native_batch_norm.out", batch_norm_out);
  m.impl("_native_batch_norm_legit", batch_norm_legit);
  m.impl("_native_batch_norm_legit.out", batch_norm_legit_out);
  m.impl("_native_batch_norm_legit.no_stats", batch_norm_no_stats);
  m.impl("_native_batch_norm_legit.no_stats_out", batch_norm_no_stats_out);
  m.impl("_batch_norm_with_update", batch_norm_with_update);
  m.impl("batch_norm_update_stats", batch_norm_update_stats);
  m.impl("native_batch_norm_backward", batch_norm_backward);
  m.impl("batch_norm_backward", new_batch_norm_backward);
}

} // namespace
} // namespace torch_webgpu
