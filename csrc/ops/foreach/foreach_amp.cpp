// What torch.amp.GradScaler does on the device.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale_ops.h>
#include <torch/library.h>

#include "backend/fallback.h"
#include "backend/tensor.h"
#include "wgsl/kernel_source.h"
#include "launch/dtypes.h"
#include "ops/foreach/foreach_launch.h"
#include "runtime/context.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using at::TensorList;

constexpr PipelineFamily kFamily = PipelineFamily::kAmp;

std::string unscale_body(const MultiTensorOp&) {
  return R"(
fn prepare(t: u32) {}
fn element(v: ptr<function, array<value_t, kRoles>>, t: u32) {
  if (!is_finite_f((*v)[0])) { set_found_inf(); }
  (*v)[0] = select((*v)[0] * inv_scale(), (*v)[0], inv_scale() == 1.0);
}
)";
}

void unscale(TensorList self, Tensor& found_inf, const Tensor& inv_scale) {
  if (self.empty()) {
    return;
  }
  TORCH_CHECK(inv_scale.numel() == 1, "inv_scale must be a 1-element tensor.");
  TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
  TORCH_CHECK(inv_scale.scalar_type() == at::kFloat, "inv_scale must be a float tensor.");
  TORCH_CHECK(found_inf.scalar_type() == at::kFloat, "found_inf must be a float tensor.");
  const auto dtype = native_float_dtype(self[0].scalar_type());
  if (!dtype) {
    return call_cpu_fallback<at::_ops::_amp_foreach_non_finite_check_and_unscale_>::call(
        self, found_inf, inv_scale);
  }
  MultiTensorOp op;
  op.id = uint64_t{1} << 41;
  op.name = "_amp_foreach_non_finite_check_and_unscale_";
  op.dtype = *dtype;
  op.read = 1;
  op.written = 1;
  op.body = &unscale_body;
  op.shared = {SharedNumber{"inv_scale"}, SharedNumber{"found_inf", DType::kF32, true}};
  op.num_shared = 2;
  MultiTensorOperands operands;
  operands.roles[0] = self;
  operands.num_roles = 1;
  operands.shared = {inv_scale, found_inf};
  multi_tensor_staged(op, operands);
}

// As `Params` in amp_update_scale.wgsl.
struct Params {
  uint32_t scale_offset;
  uint32_t tracker_offset;
  uint32_t found_offset;
  int32_t interval;
  float growth;
  float backoff;
};

PipelineSpec update_scale_pipeline() {
  KernelSource source;
  source.file = "amp_update_scale";
  source.operands = {{.name = "scale", .dtype = DType::kF32, .slot = 0, .writable = true},
                     {.name = "tracker", .dtype = DType::kI32, .slot = 1, .writable = true},
                     {.name = "found", .dtype = DType::kF32, .slot = 2}};
  return build_kernel("_amp_update_scale_", source);
}

Tensor& update_scale(Tensor& self, Tensor& growth_tracker, const Tensor& found_inf, double growth,
                     double backoff, int64_t interval) {
  TORCH_CHECK(growth_tracker.numel() == 1, "growth_tracker must be a 1-element tensor.");
  TORCH_CHECK(self.numel() == 1, "current_scale must be a 1-element tensor.");
  TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
  TORCH_CHECK(growth_tracker.scalar_type() == at::kInt, "growth_tracker must be an int tensor.");
  TORCH_CHECK(self.scalar_type() == at::kFloat, "current_scale must be a float tensor.");
  TORCH_CHECK(found_inf.scalar_type() == at::kFloat, "found_inf must be a float tensor.");
  auto word = [](const Tensor& tensor) { return static_cast<uint32_t>(byte_offset(tensor) / 4); };
  const Params params{word(self),
                      word(growth_tracker),
                      word(found_inf),
                      static_cast<int32_t>(interval),
                      static_cast<float>(growth),
                      static_cast<float>(backoff)};
  Context& ctx = context();
  const Pipeline& pipeline = ctx.pipelines.get({kFamily, 0, 0}, &update_scale_pipeline);
  ctx.stream.dispatch(pipeline,
                      {{&buffer_of(self)}, {&buffer_of(growth_tracker)}, {&buffer_of(found_inf)}},
                      params, {1, 1, 1});
  return self;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_amp_foreach_non_finite_check_and_unscale_", &unscale);
  m.impl("_amp_update_scale_", &update_scale);
}

} // namespace
} // namespace torch_webgpu
