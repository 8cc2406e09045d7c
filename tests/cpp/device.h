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

/// Parameters of the kernels below.
struct CountParams {
  uint32_t count;
  uint32_t value;
};

/// The pipeline of a kernel of the tests, made at first use. `number` tells it from the others.
inline const Pipeline& test_pipeline(uint32_t number, const char* label, BindingLayout binding,
                                     const char* source) {
  return context().pipelines.get({PipelineFamily{1}, number}, [&] {
    PipelineSpec spec;
    spec.label = label;
    spec.source = source;
    spec.binding = binding;
    return spec;
  });
}

} // namespace torch_webgpu
