// From a tensor to the GPU buffer behind it. No look-up: the storage's DataPtr carries the Buffer.
#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/Storage.h>

#include <cstdint>

#include "backend/device.h"
#include "runtime/buffer.h"

namespace torch_webgpu {

inline bool is_webgpu(const at::TensorBase& tensor) { return tensor.device().type() == kWebGPU; }

/// Deleter of every DataPtr that the backend's allocator makes; its context is a Buffer*.
void free_buffer(void* buffer);

/// A byte of a buffer.
struct BufferPosition {
  const Buffer* buffer = nullptr;
  uint64_t offset = 0; // bytes
};

/// Finds the buffer by its address, which is slower. For a DataPtr that the allocator did not make:
/// one that borrows webgpu memory (from_blob, DLPack, the pickler), or that of an empty storage,
/// which gets a small shared buffer so that it can be bound like any other. Raises for an address
/// outside of the pool's buffers.
BufferPosition find_position(const c10::DataPtr& data);

/// What a caller does with the memory of a storage. What lazy clones share is copied before a
/// write, and before a captured graph uses it.
enum class Use : uint8_t { kRead, kWrite };

/// The slow way to the buffer of a storage: it shares memory, borrows it, or has none.
const Buffer& find_buffer(const c10::Storage& storage, Use use);

inline const Buffer& buffer_of(const c10::Storage& storage, Use use = Use::kRead) {
  const c10::DataPtr& data = storage.data_ptr();
  if (C10_LIKELY(data.get_deleter() == &free_buffer)) {
    return *static_cast<const Buffer*>(data.get_context());
  }
  return find_buffer(storage, use);
}

/// Raises as set_() does if the storage ends before the tensor's last element, which it does after
/// it was shrunk.
[[noreturn]] void raise_beyond_storage(const at::TensorBase& tensor);
inline void check_in_storage(const at::TensorBase& tensor) {
  const int64_t numel = tensor.numel();
  if (numel == 0) {
    return;
  }
  int64_t last = tensor.storage_offset();
  if (C10_LIKELY(tensor.is_contiguous())) {
    last += numel - 1;
  } else {
    const at::IntArrayRef sizes = tensor.sizes();
    const at::IntArrayRef strides = tensor.strides();
    for (size_t d = 0; d < sizes.size(); ++d) {
      last += (sizes[d] - 1) * strides[d];
    }
  }
  const size_t bytes = tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes();
  if (C10_UNLIKELY((static_cast<size_t>(last) + 1) * tensor.itemsize() > bytes)) {
    raise_beyond_storage(tensor);
  }
}

/// The buffer that holds the tensor's storage. Every operand of every launch and copy comes through
/// here, so here its elements are checked to lie in the storage.
inline const Buffer& buffer_of(const at::TensorBase& tensor, Use use = Use::kRead) {
  check_in_storage(tensor);
  return buffer_of(tensor.unsafeGetTensorImpl()->unsafe_storage(), use);
}

/// The buffer of a tensor that is going to be written. Making one ends the sharing with lazy
/// clones: it is the target of every upload and copy to a tensor, and of a range that a kernel
/// writes.
class WrittenBuffer {
public:
  WrittenBuffer() = default;
  explicit WrittenBuffer(const at::TensorBase& tensor) : buffer_(&buffer_of(tensor, Use::kWrite)) {}
  const Buffer& operator*() const { return *buffer_; }
  const Buffer* operator->() const { return buffer_; }

private:
  const Buffer* buffer_ = nullptr;
};

/// Where the tensor's first element lies in buffer_of(tensor), in bytes.
inline uint64_t byte_offset(const at::TensorBase& tensor) {
  const c10::DataPtr& data = tensor.unsafeGetTensorImpl()->unsafe_storage().data_ptr();
  const uint64_t base =
      C10_LIKELY(data.get_deleter() == &free_buffer) ? 0 : find_position(data).offset;
  return base + static_cast<uint64_t>(tensor.storage_offset()) * tensor.itemsize();
}

/// The context whose device holds the tensor.
inline Context& context_of(const at::TensorBase& tensor) { return *buffer_of(tensor).context; }

/// Whether two tensors lie in the same buffer, i.e. may alias.
inline bool same_buffer(const at::TensorBase& a, const at::TensorBase& b) {
  return &buffer_of(a) == &buffer_of(b);
}

} // namespace torch_webgpu
