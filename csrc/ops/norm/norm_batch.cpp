// Batch normalization.
#include <ATen/ceil_div.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/batch_norm_update_stats_ops.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward_ops.h>
#include <ATen/ops/rsqrt.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <tuple>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/registration.h"
#include "backend/tensor.h"
#include "kernels/norm_batch.h"
#include "kernels/norm_batch_backward.h"
#include "kernels/norm_batch_moments.h"
#include "kernels/norm_batch_sums.h"
#include "launch/binding_list.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "launch/target_scope.h"
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

int64_t elements_per_channel(const Tensor& input) {
  return input.numel() / std::max<int64_t>(input.size(1), 1);
}

// A number of elements as a kernel weighs means and variances by it.
uint32_t count_word(int64_t elements) {
  return static_cast<uint32_t>(std::min<int64_t>(elements, std::numeric_limits<uint32_t>::max()));
}

// Raises unless `values` is undefined or has one value per channel.
void check_per_channel(const Tensor& values, const char* name, const Tensor& input) {
  TORCH_CHECK(!values.defined() || (values.dim() == 1 && values.size(0) == input.size(1)), name,
              " should contain ", input.size(1), " elements not ", values.numel());
}

// How the kernels that sum over channels walk a tensor (channel_walk.wgsl).
struct ChannelWalk {
  int64_t images;
  int64_t positions; // of an image
  int64_t image_stride;
  int64_t position_stride;
  int64_t channel_stride;
  bool pairs; // of neighbouring positions, which lie at word boundaries

  bool operator==(const ChannelWalk&) const = default;
  int64_t elements() const { return images * positions; } // of a channel
};

// Nothing for a tensor that they do not walk: one that is not dense, or too large for a binding.
std::optional<ChannelWalk> walk_of(const Tensor& tensor) {
  const int64_t numel = tensor.numel();
  if (numel == 0 || numel >= int64_t{1} << 31 ||
      tensor.nbytes() > BindingList::safe_reach(plan_target(tensor))) {
    return std::nullopt;
  }
  const int64_t images = tensor.size(0);
  const int64_t channels = tensor.size(1);
  const int64_t positions = numel / images / channels;
  if (positions > 1 && tensor.is_contiguous()) {
    const bool pairs = tensor.itemsize() == 2 && positions % 2 == 0 && byte_offset(tensor) % 4 == 0;
    return ChannelWalk{images, positions, channels * positions, 1, positions, pairs};
  }
  if (tensor.is_contiguous() || tensor.is_contiguous(at::MemoryFormat::ChannelsLast) ||
      tensor.is_contiguous(at::MemoryFormat::ChannelsLast3d)) {
    return ChannelWalk{1, images * positions, 0, channels, 1, false};
  }
  return std::nullopt;
}

// How the elements of each channel are divided among workgroups.
struct ChannelParts {
  int64_t units; // of a channel, each a pair or an element
  int64_t units_of_part;
  int64_t parts;
  uint32_t channel_lanes; // neighbouring channels that a workgroup takes

  ChannelParts(const ChannelWalk& walk, const Tensor& input)
      : units(walk.elements() / (walk.pairs ? 2 : 1)),
        channel_lanes(walk.channel_stride == 1 ? 32 : 1) {
    constexpr int64_t kLeastSteps = 8; // that a workgroup's invocations take
    const int64_t lanes = kernels::norm_batch_moments::kWorkgroup / channel_lanes;
    const int64_t groups = at::ceil_div<int64_t>(input.size(1), channel_lanes);
    const int64_t enough = plan_target(input).workgroups_to_fill / 2;
    const int64_t wanted =
        std::clamp<int64_t>(enough / groups, 1, at::ceil_div(units, lanes * kLeastSteps));
    units_of_part = at::ceil_div(units, wanted);
    parts = at::ceil_div(units, units_of_part);
  }

  template <class Launch, class Params>
  void run(Launch& launch, const ChannelWalk& walk, int64_t channels, Params params) const {
    const int64_t unit = walk.pairs ? 2 : 1;
    params.channels = static_cast<uint32_t>(channels);
    params.positions = static_cast<uint32_t>(walk.positions / unit);
    params.units = static_cast<uint32_t>(units);
    params.units_of_part = static_cast<uint32_t>(units_of_part);
    params.parts = static_cast<uint32_t>(parts);
    params.image_stride = static_cast<uint32_t>(walk.image_stride);
    params.position_stride = static_cast<uint32_t>(walk.position_stride * unit);
    params.channel_stride = static_cast<uint32_t>(walk.channel_stride);
    launch.pairs(walk.pairs).channel_lanes(channel_lanes);
    launch.run(params);
  }
};

// Two numbers for each channel and part of its elements: [parts, 2, channels].
struct Sums {
  Tensor values;
  int64_t elements_of_part;

  Tensor part(int64_t which) const { return values[0][which]; }
  uint32_t parts() const { return static_cast<uint32_t>(values.size(0)); }
  // For the kernels that combine them: neighbouring channels of a workgroup.
  uint32_t channel_lanes() const { return parts() == 1 ? 256 : 8; }
};

Sums empty_sums(const Tensor& input, int64_t parts, int64_t elements_of_part) {
  return {empty_webgpu({parts, 2, input.size(1)}, at::kFloat, input.device()), elements_of_part};
}

// Mean and variance without correction.
Sums moments_of(const Tensor& input) {
  if (const auto walk = walk_of(input)) {
    const ChannelParts division(*walk, input);
    const Sums sums =
        empty_sums(input, division.parts, division.units_of_part * (walk->pairs ? 2 : 1));
    kernels::norm_batch_moments::Launch launch("native_batch_norm");
    launch.parts(sums.values).x(input);
    division.run(launch, *walk, input.size(1), kernels::norm_batch_moments::Params{});
    return sums;
  }
  const Sums sums = empty_sums(input, 1, elements_per_channel(input));
  moments(per_channel(sums.part(1), input), per_channel(sums.part(0), input), input);
  return sums;
}

// Sums of the gradient, and of its products with the normalized input.
Sums sums_of(const Tensor& gradient, const Tensor& input, const Tensor& mean,
             const Tensor& invstd) {
  const auto walk = walk_of(input);
  if (walk && walk == walk_of(gradient)) {
    const ChannelParts division(*walk, input);
    const Sums sums = empty_sums(input, division.parts, 0);
    kernels::norm_batch_sums::Launch launch("native_batch_norm_backward");
    launch.parts(sums.values).gradient(gradient).x(input).mean(mean).invstd(invstd);
    division.run(launch, *walk, input.size(1), kernels::norm_batch_sums::Params{});
    return sums;
  }
  const Sums sums = empty_sums(input, 1, 0);
  normalized_sums(per_channel(sums.part(0), input), per_channel(sums.part(1), input), gradient,
                  input, per_channel(mean, input), per_channel(invstd, input));
  return sums;
}

struct Affine {
  Tensor weight;
  Tensor bias;

  void check(const Tensor& input) const {
    check_per_channel(weight, "weight", input);
    check_per_channel(bias, "bias", input);
  }
};

// Sets what both uses of the kernel have, and runs it. Returns scale and shift, as rows.
Tensor run_scales(kernels::norm_batch::Launch& launch, kernels::norm_batch::Params params,
                  const Tensor& input, const Tensor& invstd, const Affine& affine, double eps) {
  const int64_t channels = input.size(1);
  Tensor scales = empty_webgpu({2, channels}, at::kFloat, input.device());
  if (channels == 0) {
    return scales;
  }
  launch.invstd(invstd).scales(scales);
  if (affine.weight.defined()) {
    launch.weight(affine.weight);
  }
  if (affine.bias.defined()) {
    launch.bias(affine.bias);
  }
  params.channels = static_cast<uint32_t>(channels);
  params.eps = static_cast<float>(eps);
  launch.run(params);
  return scales;
}

// Scale and shift from statistics that are given.
Tensor scales_of(const Tensor& input, const Tensor& mean, const Tensor& var, const Tensor& invstd,
                 const Affine& affine, double eps) {
  affine.check(input);
  check_per_channel(mean, "running_mean", input);
  check_per_channel(var, "running_var", input);
  kernels::norm_batch::Launch launch("native_batch_norm");
  launch.mean(mean).var(var).channel_lanes(256);
  return run_scales(launch, {}, input, invstd, affine, eps);
}

// Scale and shift from those of the batch; updates running statistics if given.
Tensor scales_of_batch(const Tensor& input, const Sums& moments, const Tensor& mean,
                       const Tensor& invstd, const Affine& affine, const Tensor& running_mean,
                       const Tensor& running_var, double momentum, double eps) {
  affine.check(input);
  check_per_channel(running_mean, "running_mean", input);
  check_per_channel(running_var, "running_var", input);
  kernels::norm_batch::Launch launch("native_batch_norm");
  launch.parts(moments.values).batch_mean(mean).channel_lanes(moments.channel_lanes());
  if (running_mean.defined()) {
    launch.running_mean(running_mean);
  }
  if (running_var.defined()) {
    launch.running_var(running_var);
  }
  const auto n = static_cast<float>(elements_per_channel(input));
  kernels::norm_batch::Params params{};
  params.momentum = static_cast<float>(momentum);
  params.unbias = n / (n - 1);
  params.parts = moments.parts();
  params.elements = count_word(elements_per_channel(input));
  params.elements_of_part = count_word(moments.elements_of_part);
  return run_scales(launch, params, input, invstd, affine, eps);
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
  TORCH_CHECK(!training || input.numel() != 0,
              "input tensor must have at least one element, but got input_sizes = ", input.sizes());
  const Tensor out = empty_of_format(input);
  const Tensor invstd = empty_webgpu({input.size(1)}, at::kFloat, input.device());
  if (!training) {
    const Tensor scales = scales_of(input, given_mean.contiguous(), given_var.contiguous(), invstd,
                                    {packed(weight), packed(bias)}, eps);
    normalize(out, input, scales);
    const auto none = [&] { return empty_webgpu({0}, at::kFloat, input.device()); };
    return {out, none(), none()};
  }
  const Tensor mean = empty_webgpu({input.size(1)}, at::kFloat, input.device());
  const Tensor mean_update = packed(running_mean);
  const Tensor var_update = packed(running_var);
  const Tensor scales =
      scales_of_batch(input, moments_of(input), mean, invstd, {packed(weight), packed(bias)},
                      mean_update, var_update, momentum, eps);
  if (mean_update.defined() && !mean_update.is_same(given_mean)) {
    given_mean.copy_(mean_update);
  }
  if (var_update.defined() && !var_update.is_same(given_var)) {
    given_var.copy_(var_update);
  }
  normalize(out, input, scales);
  return {out, mean, invstd};
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
  // The variance is a result here, so it is not left in parts.
  const Sums sums = empty_sums(input, 1, elements_per_channel(input));
  moments(per_channel(sums.part(1), input), per_channel(sums.part(0), input), input);
  const Tensor mean = empty_webgpu({input.size(1)}, at::kFloat, input.device());
  const Tensor invstd = at::empty_like(mean);
  const Tensor mean_update = packed(running_mean);
  const Tensor var_update = packed(running_var);
  scales_of_batch(input, sums, mean, invstd, {}, mean_update, var_update, momentum, 0);
  if (mean_update.defined() && !mean_update.is_same(*running_mean)) {
    running_mean->copy_(mean_update);
  }
  if (var_update.defined() && !var_update.is_same(*running_var)) {
    running_var->copy_(var_update);
  }
  return {mean, sums.part(1)};
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
  const auto gradient_if = [&](bool wanted) {
    return wanted ? empty_webgpu({channels}, type, input.device()) : Tensor();
  };
  const Tensor grad_weight = gradient_if(mask[1]);
  const Tensor grad_bias = gradient_if(mask[2]);
  const Tensor grad_input =
      mask[0] ? at::empty_like(input, input.suggest_memory_format()) : Tensor();
  if (channels == 0) {
    return {grad_input, grad_weight, grad_bias};
  }
  const Sums sums = sums_of(gradient, input, mean, invstd);
  const Tensor scales = empty_webgpu({3, channels}, at::kFloat, input.device());
  kernels::norm_batch_backward::Launch launch("native_batch_norm_backward");
  launch.scales(scales).parts(sums.values).mean(mean).invstd(invstd);
  if (weight.defined()) {
    launch.weight(weight);
  }
  if (grad_weight.defined()) {
    launch.weight_gradient(grad_weight);
  }
  if (grad_bias.defined()) {
    launch.bias_gradient(grad_bias);
  }
  const auto n = static_cast<float>(elements_per_channel(input));
  launch.channel_lanes(sums.channel_lanes());
  launch.run({.channels = static_cast<uint32_t>(channels),
              .per_element = train ? 1 / n : 0,
              .parts = sums.parts()});
  if (grad_input.defined() && input.numel() != 0) {
    auto iter = channel_iterator(grad_input,
                                 {gradient, input, per_channel(scales[0], input),
                                  per_channel(scales[1], input), per_channel(scales[2], input)});
    const DType dtype = *native_dtype(input.scalar_type());
    pointwise(iter, PointwiseOp::scale_two_shift,
              {DType::kF32,
               {dtype, *native_dtype(gradient.scalar_type()), dtype, DType::kF32, DType::kF32,
                DType::kF32}});
  }
  return {grad_input, grad_weight, grad_bias};
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

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
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
