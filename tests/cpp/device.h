// What the tests of the runtime share.
#pragma once

#include <cstdint>

#include "runtime/context.h"

namespace torch_webgpu {

inline Stream& stream() { return context().stream; }

/// A buffer of the pool, for as long as this lives.
struct Owned {
  explicit Owned(uint64_t bytes) : buffer(context().allocator.allocate(bytes)) {}
  ~Owned() { context().allocator.free(buffer); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Buffer& operator*() const { return *buffer; }
  Buffer* buffer;
};

} // namespace torch_webgpu
