// _fused_moving_avg_obs_fq_helper: the observers of quantization-aware training.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.h>
#include <ATen/ops/_fused_moving_avg_obs_fq_helper_ops.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/fake_quantize_per_channel_affine_cachemask.h>
#include <ATen/ops/ones_like.h>

#include <limits>
#include <numeric>

#include "backend/fallback.h"
#include "backend/registration.h"
#include "kernels/quantize_observe.h"
#include "launch/common.h"
#include "launch/dtypes.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

// A matrix whose rows are the channels: dimension `axis` first, all others flattened.
Tensor by_channels(const Tensor& x, int64_t axis) {
  if (x.dim() == 2) {
    return x; // whatever the axis, as on the CPU and CUDA
  }
  std::vector<int64_t> order(x.dim());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[0], order[axis]);
  return x.permute(order).flatten(1);
}

std::tuple<Tensor, Tensor> observe_and_quantize(const Tensor& self, const Tensor& observer_on,
                                                const Tensor& fake_quant_on, Tensor& running_min,
                                                Tensor& running_max, Tensor& scale,
                                                Tensor& zero_point, double averaging_const,
                                                int64_t quant_min, int64_t quant_max,
                                                int64_t ch_axis, bool per_row, bool symmetric) {
  constexpr const char* op = "_fused_moving_avg_obs_fq_helper";
  check_same_device(op, {{self, "self"},
                         {observer_on, "observer_on"},
                         {fake_quant_on, "fake_quant_on"},
                         {running_min, "running_min"},
                         {running_max, "running_max"},
                         {scale, "scale"},
                         {zero_point, "zero_point"}});
  TORCH_CHECK(ch_axis < self.dim(),
              "Error in fused_moving_avg_obs_fake_quant_cpu: ch_axis must be < self.dim()");
  if (!is_native_float(self)) {
    return call_cpu_fallback<at::_ops::_fused_moving_avg_obs_fq_helper>::call(
        self, observer_on, fake_quant_on, running_min, running_max, scale, zero_point,
        averaging_const, quant_min, quant_max, ch_axis, per_row, symmetric);
  }
  int64_t channels = 1;
  Tensor low, high;
  if (per_row) {
    TORCH_CHECK(
        ch_axis == 0,
        "Per-channel FakeQuant in fused_moving_avg_obs_fake_quant is only supported on axis == 0");
    channels = self.size(ch_axis);
    if (running_min.numel() == 0) {
      constexpr float infinity = std::numeric_limits<float>::infinity();
      running_min.resize_(channels).fill_(infinity);
      running_max.resize_(channels).fill_(-infinity);
      scale.resize_(channels);
      zero_point.resize_(channels);
    }
    std::tie(low, high) = at::aminmax(by_channels(self, ch_axis), 1);
  } else {
    std::tie(low, high) = at::aminmax(self);
  }
  for (const Tensor& state : {running_min, running_max, scale, zero_point}) {
    TORCH_CHECK(state.numel() >= channels && state.is_contiguous(), op, ": expected ", channels,
                " values side by side for the observer's state, got ", state.sizes());
    const bool is_zero_point = state.is_same(zero_point);
    TORCH_CHECK(state.scalar_type() == (is_zero_point ? at::kInt : at::kFloat), op,
                ": expected the observer's ",
                is_zero_point ? "zero point to be Int" : "state to be Float", ", got ",
                state.scalar_type());
  }
  const Tensor observes = observer_on.to(at::kInt);
  const Tensor quantizes = fake_quant_on.to(at::kInt);
  kernels::quantize_observe::Launch launch(op);
  launch.running_low(running_min).running_high(running_max).scale(scale).zero_point(zero_point);
  launch.low(low).high(high).observes(observes).quantizes(quantizes);
  const auto count = static_cast<uint32_t>(channels);
  launch.run({.count = count,
              .symmetric = symmetric ? 1u : 0u,
              .least = static_cast<int32_t>(quant_min),
              .greatest = static_cast<int32_t>(quant_max),
              .rate = static_cast<float>(averaging_const)},
             launch.grid_of(count));
  if (!per_row) {
    return at::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
        self, scale, zero_point, fake_quant_on, quant_min, quant_max);
  }
  // The per-channel operator reads the zero points on the host anyway, so reading the flag costs
  // little.
  if (quantizes.item<int>() == 0) {
    return {self.clone(), at::ones_like(self, at::kBool)};
  }
  return at::fake_quantize_per_channel_affine_cachemask(self, scale, zero_point, ch_axis, quant_min,
                                                        quant_max);
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_moving_avg_obs_fq_helper", TORCH_FN(observe_and_quantize));
}

} // namespace
} // namespace torch_webgpu
