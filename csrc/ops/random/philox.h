// A place in the stream of random numbers, as kernels take it.
#pragma once

#include <array>
#include <cstdint>

#include "backend/generator.h"

namespace torch_webgpu {

/// The key and the counter: `philox: vec4<u32>` of a kernel's Params.
inline std::array<uint32_t, 4> philox_words(const PhiloxState& state) {
  const auto key = state.key_words();
  const auto counter = state.counter_words();
  return {key[0], key[1], counter[0], counter[1]};
}

} // namespace torch_webgpu
