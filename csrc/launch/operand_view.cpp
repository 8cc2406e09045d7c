#include "launch/operand_view.h"

#include <ATen/ops/as_strided.h>

#include "backend/tensor.h"

namespace torch_webgpu {
namespace {

// The extent of an element of `bytes` at byte `start` and of all elements that the strides reach
// from it. Strides count `unit` bytes.
Extent extent_of(uint64_t start, uint64_t bytes, at::IntArrayRef sizes, at::IntArrayRef strides,
                 int64_t unit) {
  Extent extent = {start, start + bytes};
  for (size_t d = 0; d < sizes.size(); ++d) {
    const int64_t reach = strides[d] * (sizes[d] - 1) * unit;
    (reach < 0 ? extent.begin : extent.end) += static_cast<uint64_t>(reach); // a flip's is negative
  }
  return extent;
}

} // namespace

Extent extent_of(const at::TensorBase& tensor) {
  const uint64_t start = byte_offset(tensor);
  if (tensor.numel() == 0) {
    return {start, start};
  }
  const auto bytes = static_cast<int64_t>(tensor.itemsize());
  return extent_of(start, bytes, tensor.sizes(), tensor.strides(), bytes);
}

Extent extent_of(const at::TensorIteratorBase& iter, int operand) {
  const uint64_t start = start_of(iter, operand, buffer_of(iter.tensor_base(operand)));
  return extent_of(start, iter.element_size(operand), iter.shape(), iter.strides(operand), 1);
}

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
  const auto moved =
      static_cast<int64_t>(start_of(iter, operand, buffer_of(tensor)) - byte_offset(tensor));
  return at::as_strided(tensor, sizes, strides, tensor.storage_offset() + moved / bytes);
}

} // namespace torch_webgpu
