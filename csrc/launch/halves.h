// Tensors of more elements than a kernel can count: operators run on parts of them.
#pragma once

#include <ATen/core/Tensor.h>

#include "launch/target_scope.h"

namespace torch_webgpu {

/// Whether kernels can count the tensor's elements.
inline bool is_countable(const at::TensorBase& tensor) {
  return tensor.numel() == 0 ||
         static_cast<uint64_t>(tensor.numel()) < plan_target(tensor).max_elements;
}

/// Calls run(dim, begin, size) for both halves of the first dimension other than `kept` that has
/// more than one element. False if there is none. Halves of a contiguous tensor are contiguous,
/// unless `kept` is an earlier dimension with more than one element.
template <class Run>
bool in_halves(at::IntArrayRef sizes, int64_t kept, Run&& run) {
  for (int64_t dim = 0; dim < static_cast<int64_t>(sizes.size()); ++dim) {
    if (dim != kept && sizes[dim] > 1) {
      const int64_t half = sizes[dim] / 2;
      run(dim, int64_t{0}, half);
      run(dim, half, sizes[dim] - half);
      return true;
    }
  }
  return false;
}

} // namespace torch_webgpu
