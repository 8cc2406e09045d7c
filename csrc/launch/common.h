// Small things that hand-written kernels share.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/op_registration/adaption.h>
#include <ATen/native/Resize.h>

#include <array>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "backend/tensor.h"
#include "runtime/context.h"

namespace torch_webgpu {

/// Where a tensor starts in its buffer, in elements.
inline uint32_t element_begin(const at::TensorBase& tensor) {
  return static_cast<uint32_t>(byte_offset(tensor) / tensor.itemsize());
}

/// The number of dimensions, for an array of a kernel's parameters that holds `limit` of them.
inline uint32_t bounded_rank(std::string_view op, int64_t rank, uint32_t limit) {
  TORCH_CHECK_NOT_IMPLEMENTED(rank <= limit, op, "(): a tensor of ", rank,
                              " dimensions, where the kernel takes at most ", limit);
  return static_cast<uint32_t>(rank);
}

/// PyTorch's device check and text, for plainly registered ops: torchgen's wrappers do it for the
/// others.
inline void
check_same_device(const char* op,
                  std::initializer_list<std::pair<const at::Tensor&, const char*>> tensors) {
  std::optional<at::Device> common;
  for (const auto& [tensor, name] : tensors) {
    if (!common && tensor.defined() && is_webgpu(tensor)) {
      common = tensor.device();
    }
  }
  for (const auto& [tensor, name] : tensors) {
    c10::impl::check_and_update_common_device(common, tensor, op, name);
  }
}

/// Refuses an argument of another dtype, as the CPU's kernels do.
inline void check_dtype(const at::Tensor& tensor, at::ScalarType expected) {
  TORCH_CHECK(tensor.scalar_type() == expected, "expected scalar type ", expected, " but found ",
              tensor.scalar_type());
}

/// Delivers `result` as the value of an out= argument: resized (PyTorch warns if it had elements)
/// and converted to its dtype.
inline at::Tensor& write_out(const at::Tensor& result, at::Tensor& out) {
  TORCH_CHECK(result.device() == out.device(), "Expected all tensors to be on the same device, ",
              "but found at least two devices, ", result.device(), " and ", out.device(), "!");
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

/// A 0-d tensor as a view of one dimension, so that kernels need not handle 0-d tensors.
inline at::Tensor at_least_1d(const at::Tensor& tensor) {
  return tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor;
}

} // namespace torch_webgpu
