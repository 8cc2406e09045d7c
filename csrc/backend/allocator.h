// The allocators PyTorch sees: device memory from the runtime's pool, and 'pinned' host memory.
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Allocator.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "backend/tensor.h"

namespace torch_webgpu {

class HostBlock;

/// The allocator of a webgpu device, or without an index of the current one, which is what c10
/// knows: DataPtrs whose data is the buffer's (inaccessible) address and whose context is the
/// Buffer. Allocating starts the device; zero bytes do not.
c10::Allocator* device_allocator(c10::Device device);

/// The place of an address of a tensor's memory; no buffer if it is none of ours.
BufferPosition find_position(const void* data);
/// The device that an address of a tensor's memory belongs to; nothing if it is none of ours.
std::optional<c10::Device> find_device(const void* data);

/// Pinned host memory, which devices read and write themselves where they can. What is freed is
/// kept until empty_cache().
at::HostAllocator* pinned_allocator();

/// Where an address lies in pinned memory; no block if it does not.
struct PinnedPosition {
  std::shared_ptr<HostBlock> block;
  uint64_t offset = 0; // bytes
};
PinnedPosition find_pinned(const void* data);
bool is_pinned(const void* data);

} // namespace torch_webgpu
