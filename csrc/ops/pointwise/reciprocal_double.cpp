#include "ops/pointwise/reciprocal_double.h"

#include "backend/empty.h"
#include "launch/kernel_call.h"

namespace torch_webgpu {
namespace {

constexpr PipelineFamily kFamily = PipelineFamily::kReciprocalDouble;

// Mirrors Params of reciprocal_double.wgsl.
struct Params {
  uint32_t count;
  uint32_t x_offset;
  uint32_t y_offset;
};

} // namespace

bool reciprocal_double(at::TensorIteratorBase& iter) {
  const at::Tensor& out = iter.tensor(0);
  const at::Tensor x = iter.tensor(1).to(at::kDouble).contiguous();
  const uint64_t limit = context().device.caps().max_storage_binding_size;
  if (buffer_of(x).size > limit || x.nbytes() > limit) {
    return false;
  }
  if (x.numel() == 0) {
    return true;
  }
  const at::Tensor y = empty_webgpu(out.sizes(), at::kDouble);
  KernelCall call("reciprocal", "reciprocal_double");
  call.add_input("x", x, DType::kF64);
  call.add_output("y", y, DType::kF64);
  const Params params{static_cast<uint32_t>(x.numel()), element_begin(x), element_begin(y)};
  call.run({kFamily, 0, 0}, params, params.count, [] { return KernelCall::Hooks(); });
  at::Tensor(out).copy_(y);
  return true;
}

} // namespace torch_webgpu
