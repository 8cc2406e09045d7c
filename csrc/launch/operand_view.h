// A TensorIterator's operand as a tensor again, to copy it or to build another iterator; and where
// operands lie.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>

#include "backend/allocator.h"
#include "launch/binding_list.h"

namespace torch_webgpu {

/// The elements that the iterator (maybe a part of one, after splits) reads or writes, with its
/// dimensions in row-major order; dimensions of stride 0 have size 1. Raises for negative strides,
/// which tensors do not have.
at::Tensor operand_view(const at::TensorIteratorBase& iter, int operand);

/// Where an iterator's operand starts in `buffer`, which is its tensor's, in bytes. The iterator
/// may hold an older address: a capture moves a shared tensor to new memory.
inline uint64_t start_of(const at::TensorIteratorBase& iter, int operand, const Buffer& buffer) {
  const void* data = iter.data_ptr(operand);
  const uint64_t start = reinterpret_cast<uintptr_t>(data) - buffer.address;
  if (C10_LIKELY(start < buffer.size)) {
    return start;
  }
  // No elements at the end of the buffer, or the address of another one.
  const BufferPosition place = find_position(data);
  return place.buffer == nullptr ? start : place.offset;
}

/// The bytes of its buffer that lie between the first and the last element, both included. None
/// for a tensor without elements.
Extent extent_of(const at::TensorBase& tensor);
/// The same of an iterator's operand, whose strides may be negative.
Extent extent_of(const at::TensorIteratorBase& iter, int operand);

} // namespace torch_webgpu
