// What torch.amp.GradScaler does on the device.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale_ops.h>

#include "backend/fallback.h"
#include "backend/registration.h"
#include "kernels/amp_unscale.h"
#include "kernels/amp_update_scale.h"
#include "launch/dtypes.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using at::TensorList;

void unscale(TensorList self, Tensor& found_inf, const Tensor& inv_scale) {
  if (self.empty()) {
    return;
  }
  TORCH_CHECK(inv_scale.numel() == 1, "inv_scale must be a 1-element tensor.");
  TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
  TORCH_CHECK(inv_scale.scalar_type() == at::kFloat, "inv_scale must be a float tensor.");
  TORCH_CHECK(found_inf.scalar_type() == at::kFloat, "found_inf must be a float tensor.");
  if (!is_native_float(self[0])) {
    return call_cpu_fallback<at::_ops::_amp_foreach_non_finite_check_and_unscale_>::call(
        self, found_inf, inv_scale);
  }
  kernels::amp_unscale::Launch launch("_amp_foreach_non_finite_check_and_unscale_");
  launch.gradient(self).inv_scale(inv_scale).found_inf(found_inf);
  launch.run({});
}

Tensor& update_scale(Tensor& self, Tensor& growth_tracker, const Tensor& found_inf, double growth,
                     double backoff, int64_t interval) {
  TORCH_CHECK(growth_tracker.numel() == 1, "growth_tracker must be a 1-element tensor.");
  TORCH_CHECK(self.numel() == 1, "current_scale must be a 1-element tensor.");
  TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
  TORCH_CHECK(growth_tracker.scalar_type() == at::kInt, "growth_tracker must be an int tensor.");
  TORCH_CHECK(self.scalar_type() == at::kFloat, "current_scale must be a float tensor.");
  TORCH_CHECK(found_inf.scalar_type() == at::kFloat, "found_inf must be a float tensor.");
  kernels::amp_update_scale::Launch launch("_amp_update_scale_");
  launch.scale(self).tracker(growth_tracker).found(found_inf);
  launch.run({.interval = static_cast<int32_t>(interval),
              .growth = static_cast<float>(growth),
              .backoff = static_cast<float>(backoff)},
             launch.grid_of_groups(1));
  return self;
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_amp_foreach_non_finite_check_and_unscale_", &unscale);
  m.impl("_amp_update_scale_", &update_scale);
}

} // namespace
} // namespace torch_webgpu
