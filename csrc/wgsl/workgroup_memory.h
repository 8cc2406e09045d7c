// How much workgroup memory a shader uses.
#pragma once

#include <cstdint>
#include <string_view>

namespace torch_webgpu {

/// The bytes of the shader's workgroup variables as WebGPU counts them for
/// maxComputeWorkgroupStorageSize. `shader` is complete WGSL. The lengths of arrays may be constant
/// expressions of integers. Raises kRuntime for a type whose size cannot be found.
uint64_t workgroup_memory(std::string_view shader);

} // namespace torch_webgpu
