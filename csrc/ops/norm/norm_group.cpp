// Group normalization.
#include <ATen/core/Tensor.h>
#include <ATen/ops/native_group_norm_backward_ops.h>
#include <ATen/ops/native_group_norm_ops.h>

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

// The kernels do not check these sizes themselves.
void check_sizes(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                 int64_t n, int64_t c, int64_t hw, int64_t groups) {
  TORCH_CHECK(groups > 0, "Expected num groups to be greater than 0, got ", groups);
  TORCH_CHECK(c % groups == 0, "Expected number of channels in input to be divisible by ",
              "num_groups, but got input of shape ", x.sizes(), " and num_groups=", groups);
  TORCH_CHECK(x.numel() == n * c * hw, "native_group_norm: input of shape ", x.sizes(),
              " does not have ", n, " * ", c, " * ", hw, " elements");
  for (const OptionalTensor& parameter : {weight, bias}) {
    TORCH_CHECK(!parameter.has_value() || !parameter->defined() || parameter->numel() == c,
                "native_group_norm: expected ", c, " weights and biases, one per channel");
  }
}

// ATen's shared implementation cannot be used: for devices other than the CPU it requires
// contiguous inputs, which group_norm does not make.
ThreeTensors group_norm(const Tensor& input, const OptionalTensor& weight,
                        const OptionalTensor& bias, int64_t n, int64_t c, int64_t hw,
                        int64_t groups, double eps) {
  check_same_device("native_group_norm",
                    {{input, "input"}, {value_of(weight), "weight"}, {value_of(bias), "bias"}});
  check_sizes(input, weight, bias, n, c, hw, groups);
  if (!are_native_floats({input, value_of(weight), value_of(bias)})) {
    return call_cpu_fallback<at::_ops::native_group_norm>::call(input, weight, bias, n, c, hw,
                                                                groups, eps);
  }
  const std::array<int64_t, 2> stats = {n, groups};
  const Tensor y = empty_webgpu(input.sizes(), input.scalar_type(), input.device());
  const Tensor mean = empty_webgpu(stats, at::kFloat, input.device());
  const Tensor rstd = empty_webgpu(stats, at::kFloat, input.device());
  if (input.numel() > 0) {
    const int64_t channels = c / groups;
    normalize_rows("native_group_norm", {n * groups, channels * hw, groups, channels, hw},
                   input.contiguous(), packed(weight), packed(bias), eps, y, mean, rstd);
  }
  return {y.contiguous(input.suggest_memory_format()), mean, rstd};
}

ThreeTensors group_norm_backward(const Tensor& gradient, const Tensor& input, const Tensor& mean,
                                 const Tensor& rstd, const OptionalTensor& weight, int64_t n,
                                 int64_t c, int64_t hw, int64_t groups, std::array<bool, 3> mask) {
  check_same_device("native_group_norm_backward", {{gradient, "grad_out"},
                                                   {input, "input"},
                                                   {mean, "mean"},
                                                   {rstd, "rstd"},
                                                   {value_of(weight), "weight"}});
  check_sizes(input, weight, {}, n, c, hw, groups);
  if (!are_native_floats({gradient, input, mean, rstd, value_of(weight)})) {
    return call_cpu_fallback<at::_ops::native_group_norm_backward>::call(
        gradient, input, mean, rstd, weight, n, c, hw, groups, mask);
  }
  const int64_t channels = c / groups;
  const Tensor g = gradient.contiguous();
  const Tensor x = input.contiguous();
  const Tensor row_mean = mean.contiguous();
  const Tensor row_rstd = rstd.contiguous();
  Tensor grad_input;
  if (mask[0]) {
    grad_input = empty_webgpu(input.sizes(), input.scalar_type(), input.device());
    if (input.numel() > 0) {
      gradient_of_rows("native_group_norm_backward",
                       {n * groups, channels * hw, groups, channels, hw}, g, x, row_mean, row_rstd,
                       packed(weight), grad_input);
    }
    grad_input = grad_input.contiguous(input.suggest_memory_format());
  }
  Tensor grad_weight;
  Tensor grad_bias;
  if (mask[1] || mask[2]) {
    const at::ScalarType type =
        value_of(weight).defined() ? weight->scalar_type() : input.scalar_type();
    const std::array<int64_t, 4> one = {1, groups, channels, 1};
    const std::array<int64_t, 4> all = {n, groups, channels, hw};
    const std::array<int64_t, 4> per_group = {n, groups, 1, 1};
    grad_weight = empty_webgpu({c}, type, input.device());
    grad_bias = empty_webgpu({c}, type, input.device());
    normalized_sums(grad_bias.view(one), grad_weight.view(one), g.view(all), x.view(all),
                    row_mean.view(per_group), row_rstd.view(per_group));
  }
  return {grad_input, mask[1] ? grad_weight : Tensor(), mask[2] ? grad_bias : Tensor()};
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_group_norm", group_norm);
  m.impl("native_group_norm_backward", group_norm_backward);
}

} // namespace
} // namespace torch_webgpu
