// Sizes and strides of spatial tensors as parameters of a kernel.
#pragma once

#include <array>
#include <cstdint>

#include "launch/spatial.h"

namespace torch_webgpu {

/// A vec4: depth, row, column and one more number.
inline std::array<uint32_t, 4> vec4_of(const Triple& triple, uint32_t last = 0) {
  return {triple.depth, triple.row, triple.column, last};
}
inline std::array<uint32_t, 4> sizes_of(const Spatial& tensor) { return vec4_of(tensor.sizes()); }

/// The strides of layout_of() in lib/spatial.wgsl: those of depth, row, column and channel in
/// `step`.
inline void set_strides(const Spatial& tensor, std::array<uint32_t, 4>& step, uint32_t& batch) {
  const SpatialLayout layout = tensor.layout();
  step = vec4_of(layout.step, layout.channel);
  batch = layout.batch;
}

} // namespace torch_webgpu
