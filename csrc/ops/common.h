// Small things that hand-written kernels share: bindings and contiguous inputs.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/op_registration/adaption.h>

#include <initializer_list>
#include <utility>

#include "backend/tensor.h"
#include "runtime/context.h"

namespace torch_webgpu {

/// The binding of a whole buffer. Raises where it is larger than the adapter can bind at once.
inline Binding whole_buffer(const Buffer& buffer, const char* op) {
  const uint64_t limit = context().device.caps().max_storage_binding_size;
  TORCH_CHECK_NOT_IMPLEMENTED(buffer.size <= limit, op, "(): a tensor of ", buffer.size,
                              " bytes is larger than a storage binding of this adapter (", limit,
                              " bytes)");
  return {&buffer, 0, 0};
}

/// The slot of the binding; a new one unless the buffer has one already (WebGPU forbids binding a
/// buffer twice in a dispatch that writes it).
inline uint32_t add_binding(Binding* bindings, uint32_t& num_bindings, const Binding& binding) {
  for (uint32_t slot = 0; slot < num_bindings; ++slot) {
    if (bindings[slot] == binding) {
      return slot;
    }
  }
  bindings[num_bindings] = binding;
  return num_bindings++;
}

/// PyTorch's device check and text, for plainly registered ops: torchgen's wrappers do it for the
/// others.
inline void
check_same_device(const char* op,
                  std::initializer_list<std::pair<const at::Tensor&, const char*>> tensors) {
  std::optional<at::Device> common = webgpu_device();
  for (const auto& [tensor, name] : tensors) {
    c10::impl::check_and_update_common_device(common, tensor, op, name);
  }
}

/// A view with a dimension where there is none: kernels need not know 0-d tensors.
inline at::Tensor at_least_1d(const at::Tensor& tensor) {
  return tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor;
}

} // namespace torch_webgpu
