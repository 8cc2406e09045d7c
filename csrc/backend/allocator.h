// The allocators PyTorch sees: device memory from the runtime's pool, and 'pinned' host memory.
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Allocator.h>

#include <optional>

#include "backend/tensor.h"

namespace torch_webgpu {

/// The allocator of a webgpu device, or without an index of the current one, which is what c10
/// knows: DataPtrs whose data is the buffer's (inaccessible) address and whose context is the
/// Buffer. Allocating starts the device; zero bytes do not.
c10::Allocator* device_allocator(c10::Device device);

/// The place of an address of a tensor's memory; no buffer if it is none of ours.
BufferPosition find_position(const void* data);
/// The device that an address of a tensor's memory belongs to; nothing if it is none of ours.
std::optional<c10::Device> find_device(const void* data);

/// Host memory that counts as pinned. WebGPU cannot map memory of ours, so it is plain memory that
/// remembers that it was asked for. What is freed is kept until empty_cache().
at::HostAllocator* pinned_allocator();
bool is_pinned(const void* data);

} // namespace torch_webgpu
