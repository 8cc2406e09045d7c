// Dawn's extensions of webgpu.h that the runtime uses, declared here because the standard header
// that both runtimes are built against lacks them. Values: Dawn's webgpu.h.
#pragma once

#include <webgpu.h>

#include <cstddef>
#include <cstdint>

namespace torch_webgpu {

inline constexpr auto kDawnFeatureSubgroupMatrix = static_cast<WGPUFeatureName>(0x00050034);
inline constexpr auto kDawnSTypeTogglesDescriptor = static_cast<WGPUSType>(0x0005000A);

inline constexpr auto kDawnFeatureMemoryHeaps = static_cast<WGPUFeatureName>(0x00050014);
inline constexpr auto kDawnSTypeMemoryHeaps = static_cast<WGPUSType>(0x00050013);
inline constexpr uint64_t kDawnHeapDeviceLocal = 1;

inline constexpr auto kDawnFeatureHostMappedPointer = static_cast<WGPUFeatureName>(0x0005000F);
inline constexpr auto kDawnSTypeHostMappedPointer = static_cast<WGPUSType>(0x00050012);

/// WGPUBufferHostMappedPointer. Chained to WGPUBufferDescriptor: the memory becomes the buffer's.
struct DawnHostMappedPointer {
  WGPUChainedStruct chain;
  void* pointer;
  void (*dispose)(void* userdata); // called when the device needs the memory no more
  void* userdata;
};

inline constexpr auto kDawnSTypeSubgroupMatrixConfigs = static_cast<WGPUSType>(0x0005003B);

/// WGPUSubgroupMatrixConfig.
struct DawnSubgroupMatrixConfig {
  uint32_t component_type;
  uint32_t result_component_type;
  uint32_t m, n, k;
  uint32_t min_subgroup_size, max_subgroup_size;
};

/// WGPUAdapterPropertiesSubgroupMatrixConfigs. Chained to WGPUAdapterInfo; the list is Dawn's, and
/// wgpuAdapterPropertiesSubgroupMatrixConfigsFreeMembers gives it back.
struct DawnSubgroupMatrixConfigs {
  WGPUChainedStruct chain;
  size_t count;
  const DawnSubgroupMatrixConfig* configs;
};

/// WGPUMemoryHeapInfo.
struct DawnMemoryHeap {
  uint64_t properties; // bits, such as kDawnHeapDeviceLocal
  uint64_t size;       // bytes
};

/// WGPUAdapterPropertiesMemoryHeaps. Chained to WGPUAdapterInfo; the list is Dawn's, and
/// wgpuAdapterPropertiesMemoryHeapsFreeMembers gives it back.
struct DawnMemoryHeaps {
  WGPUChainedStruct chain;
  size_t count;
  const DawnMemoryHeap* heaps;
};

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
