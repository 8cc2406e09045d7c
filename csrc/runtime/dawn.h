// Dawn's extensions of webgpu.h that the runtime uses, declared here because the standard header
// that both runtimes are built against lacks them. Values: Dawn's webgpu.h.
#pragma once

#include <webgpu.h>

#include <cstddef>

namespace torch_webgpu {

inline constexpr auto kDawnFeatureSubgroupMatrix = static_cast<WGPUFeatureName>(0x00050034);
inline constexpr auto kDawnSTypeTogglesDescriptor = static_cast<WGPUSType>(0x0005000A);

struct DawnTogglesDescriptor {
  WGPUChainedStruct chain;
  size_t enabled_count;
  const char* const* enabled;
  size_t disabled_count;
  const char* const* disabled;
};

/// The arrays must outlive the descriptor.
inline DawnTogglesDescriptor dawn_toggles(const char* const* enabled, size_t enabled_count,
                                          const char* const* disabled = nullptr,
                                          size_t disabled_count = 0) {
  return {{nullptr, kDawnSTypeTogglesDescriptor}, enabled_count, enabled, disabled_count, disabled};
}

} // namespace torch_webgpu
