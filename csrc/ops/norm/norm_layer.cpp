// Layer normalization.
#include <ATen/native/layer_norm.h>
#include <ATen/ops/native_layer_norm_backward_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/registration.h"
#include "launch/common.h"
#include "ops/norm/norm.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using ThreeTensors = std::tuple<Tensor, Tensor, Tensor>;

ThreeTensors layer_norm(const Tensor& input, at::IntArrayRef normalized_shape,
                        const OptionalTensor& weight_opt, const OptionalTensor& bias_opt,
                        double eps) {
  check_same_device(
      "native_layer_norm",
      {{input, "input"}, {value_of(weight_opt), "weight"}, {value_of(bias_opt), "bias"}});
  const Tensor weight = packed(weight_opt);
  const Tensor bias = packed(bias_opt);
  const auto [m, n] = at::native::_check_layer_norm_inputs(input, normalized_shape, weight, bias);
  if (!are_native_floats({input, weight, bias})) {
    return call_cpu_fallback<at::_ops::native_layer_norm>::call(input, normalized_shape, weight_opt,
                                                                bias_opt, eps);
  }
  const Tensor y = empty_webgpu(input.sizes(), input.scalar_type(), input.device());
  at::DimVector stats(input.sizes());
  std::fill(stats.end() - static_cast<int64_t>(normalized_shape.size()), stats.end(), 1);
  const Tensor mean = empty_webgpu(stats, at::kFloat, input.device());
  const Tensor rstd = empty_webgpu(stats, at::kFloat, input.device());
  if (m > 0) {
    normalize_rows("native_layer_norm", {m, n, 1, n, 1}, input.contiguous(), weight, bias, eps, y,
                   mean, rstd);
  }
  return {y, mean, rstd};
}

ThreeTensors layer_norm_backward(const Tensor& gradient, const Tensor& input,
                                 at::IntArrayRef normalized_shape, const Tensor& mean,
                                 const Tensor& rstd, const OptionalTensor& weight_opt,
                                 const OptionalTensor& bias_opt, std::array<bool, 3> mask) {
  check_same_device("native_layer_norm_backward", {{gradient, "grad_out"},
                                                   {input, "input"},
                                                   {mean, "mean"},
                                                   {rstd, "rstd"},
                                                   {value_of(weight_opt), "weight"},
                                                   {value_of(bias_opt), "bias"}});
  const Tensor weight = packed(weight_opt);
  const Tensor bias = packed(bias_opt);
  const auto [m, n] = at::native::_check_layer_norm_inputs(input, normalized_shape, weight, bias);
  if (!are_native_floats({gradient, input, weight, mean, rstd})) {
    return call_cpu_fallback<at::_ops::native_layer_norm_backward>::call(
        gradient, input, normalized_shape, mean, rstd, weight_opt, bias_opt, mask);
  }
  const Tensor g = gradient.contiguous();
  const Tensor x = input.contiguous();
  const Tensor row_mean = mean.contiguous();
  const Tensor row_rstd = rstd.contiguous();
  const Rows rows{m, n, 1, n, 1};
  Tensor grad_input;
  Tensor grad_weight;
  Tensor grad_bias;
  if (weight.defined() || bias.defined()) {
    const at::ScalarType type = (weight.defined() ? weight : bias).scalar_type();
    grad_weight = mask[1] ? empty_webgpu(normalized_shape, type, input.device()) : Tensor();
    grad_bias = mask[2] ? empty_webgpu(normalized_shape, type, input.device()) : Tensor();
  }
  if (mask[0]) {
    grad_input = empty_webgpu(input.sizes(), input.scalar_type(), input.device());
  }
  if (mask[0] && input.numel() > 0) {
    gradient_of_rows("native_layer_norm_backward", rows, g, x, row_mean, row_rstd, weight,
                     grad_input, grad_weight, grad_bias);
  } else if (grad_weight.defined() || grad_bias.defined()) {
    gradient_of_weights(rows, g, x, row_mean, row_rstd, grad_weight, grad_bias);
  }
  return {grad_input, grad_weight, grad_bias};
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_layer_norm", layer_norm);
  m.impl("native_layer_norm_backward", layer_norm_backward);
}

} // namespace
} // namespace torch_webgpu
