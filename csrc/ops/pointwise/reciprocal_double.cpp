#include "ops/pointwise/reciprocal_double.h"

#include "backend/empty.h"
#include "backend/tensor.h"
#include "kernels/reciprocal_double.h"
#include "launch/target_scope.h"

namespace torch_webgpu {
bool reciprocal_double(at::TensorIteratorBase& iter) {
  const at::Tensor& out = iter.tensor(0);
  const at::Tensor x = iter.tensor(1).to(at::kDouble).contiguous();
  const uint64_t limit = plan_target(x).max_storage_binding_size;
  if (buffer_of(x).size > limit || x.nbytes() > limit) {
    return false;
  }
  if (x.numel() == 0) {
    return true;
  }
  const at::Tensor y = empty_webgpu(out.sizes(), at::kDouble, out.device());
  kernels::reciprocal_double::Launch launch("reciprocal");
  launch.x(x).y(y);
  const auto count = static_cast<uint32_t>(x.numel());
  launch.run({.count = count}, launch.grid_of(count));
  at::Tensor(out).copy_(y);
  return true;
}

} // namespace torch_webgpu
