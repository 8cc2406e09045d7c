// Normalization to a root mean square of 1.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/layer_norm.h>
#include <ATen/ops/_fused_rms_norm_backward_ops.h>
#include <ATen/ops/_fused_rms_norm_ops.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
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
using TwoTensors = std::tuple<Tensor, Tensor>;

// Returns the result in the input's dtype, and 1 / root mean square of each row in float32, with
// size 1 in the normalized dimensions.
TwoTensors rms_norm(const Tensor& input, at::IntArrayRef normalized_shape,
                    const OptionalTensor& weight_opt, std::optional<double> eps) {
  check_same_device("_fused_rms_norm", {{input, "input"}, {value_of(weight_opt), "weight"}});
  const Tensor weight = packed(weight_opt);
  const auto [m, n] = at::native::_check_layer_norm_inputs(input, normalized_shape, weight, {});
  if (!are_native_floats({input, weight})) {
    return call_cpu_fallback<at::_ops::_fused_rms_norm>::call(input, normalized_shape, weight_opt,
                                                              eps);
  }
  const Tensor y = empty_webgpu(input.sizes(), input.scalar_type(), input.device());
  at::DimVector stats(input.sizes());
  std::fill(stats.end() - static_cast<int64_t>(normalized_shape.size()), stats.end(), 1);
  const Tensor rstd = empty_webgpu(stats, at::kFloat, input.device());
  if (input.numel() > 0) {
    // As on CUDA, the default eps is the epsilon of the type that is computed in.
    normalize_rows("_fused_rms_norm", {m, n, 1, n, 1}, input.contiguous(), weight, {},
                   eps.value_or(std::numeric_limits<float>::epsilon()), y, {}, rstd);
  }
  return {y, rstd};
}

// For dtypes without kernels. PyTorch's CPU has none for this operator either: there autograd
// differentiates the formula of rms_norm. So it is composed of others here.
TwoTensors rms_norm_backward_on_cpu(const Tensor& gradient, const Tensor& input,
                                    at::IntArrayRef normalized_shape, const Tensor& rstd,
                                    const Tensor& weight, std::array<bool, 2> mask) {
  note_fallback("aten::_fused_rms_norm_backward", input.scalar_type());
  const Tensor g = gradient.cpu();
  const Tensor scale = rstd.cpu();
  const Tensor unit = input.cpu() * scale;
  const auto rank = static_cast<int64_t>(normalized_shape.size());
  at::DimVector normalized(rank);
  std::iota(normalized.begin(), normalized.end(), -rank);
  Tensor grad_input;
  Tensor grad_weight;
  if (mask[0]) {
    const Tensor weighted = weight.defined() ? g * weight.cpu() : g;
    const Tensor mean = (weighted * unit).mean(normalized, /*keepdim=*/true);
    grad_input = ((weighted - unit * mean) * scale).to(input.options());
  }
  if (mask[1] && weight.defined()) {
    grad_weight = (g * unit).sum_to_size(normalized_shape).to(weight.options());
  }
  return {grad_input, grad_weight};
}

TwoTensors rms_norm_backward(const Tensor& gradient, const Tensor& input,
                             at::IntArrayRef normalized_shape, const Tensor& rstd,
                             const OptionalTensor& weight_opt, std::array<bool, 2> mask) {
  check_same_device(
      "_fused_rms_norm_backward",
      {{gradient, "grad_out"}, {input, "input"}, {rstd, "rstd"}, {value_of(weight_opt), "weight"}});
  const Tensor weight = packed(weight_opt);
  const auto [m, n] = at::native::_check_layer_norm_inputs(input, normalized_shape, weight, {});
  TORCH_CHECK(gradient.sizes() == input.sizes(),
              "_fused_rms_norm_backward(): expected grad_out of ", "shape ", input.sizes(),
              ", but got ", gradient.sizes());
  TORCH_CHECK(rstd.numel() == m, "_fused_rms_norm_backward(): expected rstd of ", m,
              " elements, but got ", rstd.numel());
  if (!are_native_floats({gradient, input, rstd, weight})) {
    return rms_norm_backward_on_cpu(gradient, input, normalized_shape, rstd, weight, mask);
  }
  const Tensor g = gradient.contiguous();
  const Tensor x = input.contiguous();
  const Tensor row_rstd = rstd.to(at::kFloat).contiguous();
  const Rows rows{m, n, 1, n, 1};
  Tensor grad_input;
  Tensor grad_weight;
  if (mask[1] && weight.defined()) {
    grad_weight = empty_webgpu(normalized_shape, weight.scalar_type(), weight.device());
  }
  if (mask[0]) {
    grad_input = empty_webgpu(input.sizes(), input.scalar_type(), input.device());
  }
  if (mask[0] && input.numel() > 0) {
    gradient_of_rows("_fused_rms_norm_backward", rows, g, x, {}, row_rstd, weight, grad_input,
                     grad_weight);
  } else if (grad_weight.defined()) {
    gradient_of_weights(rows, g, x, {}, row_rstd, grad_weight, {});
  }
  return {grad_input, grad_weight};
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_rms_norm", rms_norm);
  m.impl("_fused_rms_norm_backward", rms_norm_backward);
}

} // namespace
} // namespace torch_webgpu
