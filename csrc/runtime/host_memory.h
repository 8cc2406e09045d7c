// The machine's main memory.
#pragma once

#include <cstdint>

namespace torch_webgpu {

/// In bytes; both 0 where the system does not tell.
struct HostMemory {
  uint64_t total = 0;
  uint64_t available = 0; // without swapping; the same as total where the system does not tell
};
HostMemory host_memory();

} // namespace torch_webgpu
