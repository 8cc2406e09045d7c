#include "runtime/host_memory.h"

#include <unistd.h>

#include <fstream>
#include <string>

namespace torch_webgpu {

HostMemory host_memory() {
  HostMemory memory;
  // Linux: free pages alone would leave out the cache of files, which is given up on demand.
  std::ifstream file("/proc/meminfo");
  std::string name;
  uint64_t kilobytes = 0;
  for (std::string unit; file >> name >> kilobytes; std::getline(file, unit)) {
    if (name == "MemTotal:") {
      memory.total = kilobytes << 10;
    } else if (name == "MemAvailable:") {
      memory.available = kilobytes << 10;
      return memory;
    }
  }
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0) {
    memory.total = static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes);
    memory.available = memory.total;
  }
  return memory;
}

} // namespace torch_webgpu
