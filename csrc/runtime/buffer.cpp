#include "runtime/buffer.h"

#include <string>

#include "runtime/error.h"

namespace torch_webgpu {

void check_range(const Buffer& buffer, uint64_t offset, uint64_t bytes, const char* what) {
  if (offset % 4 != 0 || bytes % 4 != 0 || offset > buffer.size || bytes > buffer.size - offset) {
    raise(ErrorKind::kRuntime, std::string("invalid ") + what + " of " + std::to_string(bytes) +
                                   " bytes at offset " + std::to_string(offset) +
                                   " of a buffer of " + std::to_string(buffer.size) + " bytes");
  }
}

} // namespace torch_webgpu
