// The WebGPU function table. Every call to WebGPU goes through it, because the two runtimes are
// reached differently: Dawn's functions come from one proc address, wgpu-native's from dlsym.
#pragma once

#include <webgpu.h>

#include <string>
#include <string_view>

#include "runtime/dawn.h"

namespace torch_webgpu {

enum class RuntimeKind { kDawn, kWgpuNative };

// One row per function the runtime uses. A missing one is an error at load time, not at its first
// call.
#define TW_WEBGPU_FUNCTIONS(X)                                                                     \
  X(CreateInstance)                                                                                \
  X(InstanceRequestAdapter)                                                                        \
  X(InstanceProcessEvents)                                                                         \
  X(AdapterGetFeatures)                                                                            \
  X(AdapterGetInfo)                                                                                \
  X(AdapterInfoFreeMembers)                                                                        \
  X(AdapterGetLimits)                                                                              \
  X(AdapterHasFeature)                                                                             \
  X(AdapterRequestDevice)                                                                          \
  X(AdapterRelease)                                                                                \
  X(SupportedFeaturesFreeMembers)                                                                  \
  X(DeviceGetQueue)                                                                                \
  X(DeviceGetLimits)                                                                               \
  X(DeviceHasFeature)                                                                              \
  X(DeviceCreateBuffer)                                                                            \
  X(DeviceCreateBindGroup)                                                                         \
  X(DeviceCreateBindGroupLayout)                                                                   \
  X(DeviceCreatePipelineLayout)                                                                    \
  X(DeviceCreateShaderModule)                                                                      \
  X(DeviceCreateComputePipeline)                                                                   \
  X(DeviceCreateCommandEncoder)                                                                    \
  X(DeviceCreateQuerySet)                                                                          \
  X(DevicePushErrorScope)                                                                          \
  X(DevicePopErrorScope)                                                                           \
  X(BufferMapAsync)                                                                                \
  X(BufferGetConstMappedRange)                                                                     \
  X(BufferGetMappedRange)                                                                          \
  X(BufferUnmap)                                                                                   \
  X(BufferDestroy)                                                                                 \
  X(BufferRelease)                                                                                 \
  X(BindGroupRelease)                                                                              \
  X(ShaderModuleRelease)                                                                           \
  X(CommandEncoderBeginComputePass)                                                                \
  X(CommandEncoderCopyBufferToBuffer)                                                              \
  X(CommandEncoderClearBuffer)                                                                     \
  X(CommandEncoderResolveQuerySet)                                                                 \
  X(CommandEncoderFinish)                                                                          \
  X(CommandEncoderRelease)                                                                         \
  X(CommandBufferRelease)                                                                          \
  X(ComputePipelineRelease)                                                                        \
  X(ComputePassEncoderSetPipeline)                                                                 \
  X(ComputePassEncoderSetBindGroup)                                                                \
  X(ComputePassEncoderDispatchWorkgroups)                                                          \
  X(ComputePassEncoderEnd)                                                                         \
  X(ComputePassEncoderRelease)                                                                     \
  X(QueueSubmit)                                                                                   \
  X(QueueWriteBuffer)                                                                              \
  X(QueueOnSubmittedWorkDone)                                                                      \
  X(QuerySetDestroy)                                                                               \
  X(QuerySetRelease)

/// WGPUInstanceEnumerateAdapterOptions of wgpu.h.
struct WgpuEnumerateAdapterOptions {
  const WGPUChainedStruct* next;
  uint64_t backends; // bits
};
/// WGPUInstanceBackend_Primary: Vulkan, Metal, D3D12 and a browser's WebGPU.
inline constexpr uint64_t kWgpuPrimaryBackends = 1 << 0 | 1 << 2 | 1 << 3 | 1 << 5;

struct Api {
#define TW_DECLARE(name) WGPUProc##name name = nullptr;
  TW_WEBGPU_FUNCTIONS(TW_DECLARE)
#undef TW_DECLARE
  // Dawn only: wgpu-native's abort as unimplemented.
  WGPUProcInstanceWaitAny InstanceWaitAny = nullptr;
  WGPUProcDeviceCreateComputePipelineAsync DeviceCreateComputePipelineAsync = nullptr;
  WGPUProcInstanceGetWGSLLanguageFeatures InstanceGetWGSLLanguageFeatures = nullptr;
  WGPUProcSupportedWGSLLanguageFeaturesFreeMembers SupportedWGSLLanguageFeaturesFreeMembers =
      nullptr;
  // Dawn only; null in a Dawn without subgroup matrices.
  void (*SubgroupMatrixConfigsFree)(DawnSubgroupMatrixConfigs configs) = nullptr;
  // Dawn only; null in a Dawn that does not list memory heaps.
  void (*MemoryHeapsFree)(DawnMemoryHeaps heaps) = nullptr;
  // wgpu-native only (wgpu.h): blocks until the queue is empty when wait is true.
  WGPUBool (*DevicePoll)(WGPUDevice device, WGPUBool wait, const uint64_t* submission) = nullptr;
  // wgpu-native only (wgpu.h): how many adapters there are, and the adapters if there is room.
  size_t (*InstanceEnumerateAdapters)(WGPUInstance instance,
                                      const WgpuEnumerateAdapterOptions* options,
                                      WGPUAdapter* adapters) = nullptr;
  // wgpu-native only: nanoseconds per timestamp tick. Dawn resolves to nanoseconds itself.
  float (*QueueGetTimestampPeriod)(WGPUQueue queue) = nullptr;
  RuntimeKind kind = RuntimeKind::kDawn;
  std::string origin; // what was loaded, for messages
};

/// Where the function table comes from.
struct RuntimeSource {
  void* get_proc_address = nullptr; // wgpuGetProcAddress of a Dawn build, or
  std::string library;              // the path of a shared library with wgpu* symbols
};

/// Fills the table. Raises kRuntime, naming the library or function, if anything is missing.
Api load_api(const RuntimeSource& source);

inline WGPUStringView to_view(std::string_view text) { return {text.data(), text.size()}; }
std::string to_string(WGPUStringView view);

} // namespace torch_webgpu
