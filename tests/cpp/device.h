// What the tests of the runtime share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

/// A pipeline over two arrays of words, `out` and `in`: `statement` computes out[id.x] from them
/// and params.value.
inline const Pipeline& word_pipeline(uint32_t number, const char* label, const char* statement) {
  const std::string source = std::string(R"(
struct Params { count: u32, value: u32 }
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var<storage, read> in: array<u32>;
@group(0) @binding(31) var<uniform> params: Params;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < params.count) { )") +
                             statement + " }\n}\n";
  return test_pipeline(number, label, {2, 1, false}, source.c_str());
}

constexpr uint32_t kWords = 4;
using Words = std::vector<uint32_t>;

/// The first kWords words of a buffer.
inline Words words_of(const Buffer& buffer) {
  Words words(kWords);
  stream().read(buffer, 0, words.data(), words.size() * 4);
  return words;
}

inline void write(const Buffer& buffer, const Words& words) {
  stream().upload(buffer, 0, words.data(), words.size() * 4);
}

} // namespace torch_webgpu
