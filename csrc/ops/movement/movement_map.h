// Launching movement_map.wgsl.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_webgpu {

/// How a coordinate beyond the mapped tensor comes back into it.
enum class CoordinateMap : uint8_t { kReflect, kReplicate, kWrap };

inline constexpr int64_t kMaxMappedDims = 12;

/// out[c] = in[map(c - shift)] for every coordinate c of `out`; one shift per dimension.
void map_elements(const char* name, CoordinateMap map, const at::Tensor& out, const at::Tensor& in,
                  at::IntArrayRef shifts);

/// The gradient: out[map(c - shift)] += in[c] for every coordinate c of `in`.
void add_mapped_elements(const char* name, CoordinateMap map, const at::Tensor& out,
                         const at::Tensor& in, at::IntArrayRef shifts);

} // namespace torch_webgpu
