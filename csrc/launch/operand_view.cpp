#include "launch/operand_view.h"

#include <ATen/ops/as_strided.h>

namespace torch_webgpu {

at::Tensor operand_view(const at::TensorIteratorBase& iter, int operand) {
  const at::Tensor& tensor = iter.tensor(operand);
  const auto bytes = static_cast<int64_t>(iter.element_size(operand));
  c10::SmallVector<int64_t, 8> sizes;
  c10::SmallVector<int64_t, 8> strides;
  for (int d = iter.ndim() - 1; d >= 0; --d) {
    const int64_t stride = iter.strides(operand)[d];
    TORCH_CHECK_NOT_IMPLEMENTED(
        stride >= 0,
        "a flipped tensor whose storage is larger than a storage binding is not supported");
    sizes.push_back(stride == 0 ? 1 : iter.shape()[d]);
    strides.push_back(stride / bytes);
  }
  const int64_t moved = static_cast<const char*>(iter.data_ptr(operand)) -
                        static_cast<const char*>(tensor.const_data_ptr());
  return at::as_strided(tensor, sizes, strides, tensor.storage_offset() + moved / bytes);
}

} // namespace torch_webgpu
