// The users of the pipeline cache.
#pragma once

#include <cstdint>

namespace torch_webgpu {

/// Pipelines of two families never share a key. The compiler numbers the families, so all numbers
/// differ. Kernels whose file states a contract have their ids; the names are those of generators.
enum class PipelineFamily : uint32_t {
  kPointwise,
  // Behind them, the kernels of KernelInfo by their ids.
  kKernels,
};

constexpr PipelineFamily family_of(uint32_t kernel_id) {
  return static_cast<PipelineFamily>(static_cast<uint32_t>(PipelineFamily::kKernels) + kernel_id);
}

} // namespace torch_webgpu
