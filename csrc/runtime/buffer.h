// A GPU buffer as the pool hands it out.
#pragma once

#include <cstdint>

#include "runtime/handles.h"

namespace torch_webgpu {

class Context;
class MemoryPool;

/// One WebGPU buffer of the pool. Its address is unique, lies in reserved inaccessible memory (a
/// host dereference faults instead of corrupting), and is what a tensor's data_ptr() shows.
struct Buffer {
  WGPUBuffer handle = nullptr;
  uint64_t size = 0;       // bytes of the WebGPU buffer, a multiple of 16
  uint64_t requested = 0;  // bytes asked for by the current owner
  uint64_t allocation = 0; // number of the allocate() that gave it to the current owner
  uintptr_t address = 0;
  uint64_t last_use = 0;      // pool clock at the last free, for trimming the oldest first
  Context* context = nullptr; // whose allocator it comes from
  MemoryPool* pool = nullptr; // null: the allocator's general pool
  uint32_t pins = 0;          // see Allocator::pin
  bool parked = false;        // freed while pinned
  bool listed = false;        // found by its address: for who owns a table of addresses
};

/// Raises kRuntime for bytes that copies cannot move: those outside of the buffer, and those that
/// are not whole words. WebGPU's validation would report them later (Dawn) or abort (wgpu-native).
/// `what` names the command.
void check_range(const Buffer& buffer, uint64_t offset, uint64_t bytes, const char* what);

} // namespace torch_webgpu
