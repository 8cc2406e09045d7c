#include "runtime/api.h"

#include "runtime/error.h"
#include "runtime/platform.h"

namespace torch_webgpu {
namespace {

void* open_library(const std::string& path) {
  std::string why;
  void* handle = platform::load_library(path, why);
  if (handle == nullptr) {
    raise(ErrorKind::kRuntime, "could not load the WebGPU runtime '" + path + "': " + why +
                                   ". TORCH_WEBGPU_RUNTIME must be 'dawn', 'wgpu' or the path of a "
                                   "shared library that exports the webgpu.h functions.");
  }
  return handle;
}

} // namespace

Api load_api(const RuntimeSource& source) {
  Api api;
  void* handle = nullptr;
  auto get_proc_address = reinterpret_cast<WGPUProcGetProcAddress>(source.get_proc_address);
  if (get_proc_address == nullptr) {
    handle = open_library(source.library);
    api.origin = source.library;
    // Only wgpu-native has wgpuDevicePoll, and only there is wgpuGetProcAddress unimplemented.
    api.kind = platform::find_symbol(handle, "wgpuDevicePoll") != nullptr ? RuntimeKind::kWgpuNative
                                                                          : RuntimeKind::kDawn;
  } else {
    api.origin = "dawn";
  }
  auto find = [&](const char* name, bool required) -> void* {
    void* address = handle != nullptr ? platform::find_symbol(handle, name)
                                      : reinterpret_cast<void*>(get_proc_address(to_view(name)));
    if (address == nullptr && required) {
      raise(ErrorKind::kRuntime, "the WebGPU runtime '" + api.origin + "' has no function " + name);
    }
    return address;
  };
#define TW_LOAD(name)                                                                              \
  api.name = reinterpret_cast<WGPUProc##name>(find("wgpu" #name, /*required=*/true));
  TW_WEBGPU_FUNCTIONS(TW_LOAD)
  if (api.kind == RuntimeKind::kWgpuNative) {
    api.DevicePoll =
        reinterpret_cast<decltype(api.DevicePoll)>(find("wgpuDevicePoll", /*required=*/true));
    api.InstanceEnumerateAdapters = reinterpret_cast<decltype(api.InstanceEnumerateAdapters)>(
        find("wgpuInstanceEnumerateAdapters", /*required=*/true));
    api.QueueGetTimestampPeriod = reinterpret_cast<decltype(api.QueueGetTimestampPeriod)>(
        find("wgpuQueueGetTimestampPeriod", /*required=*/true));
  } else {
    TW_LOAD(InstanceWaitAny)
    TW_LOAD(DeviceCreateComputePipelineAsync)
    TW_LOAD(InstanceGetWGSLLanguageFeatures)
    TW_LOAD(SupportedWGSLLanguageFeaturesFreeMembers)
    api.SubgroupMatrixConfigsFree = reinterpret_cast<decltype(api.SubgroupMatrixConfigsFree)>(
        find("wgpuAdapterPropertiesSubgroupMatrixConfigsFreeMembers", /*required=*/false));
    api.MemoryHeapsFree = reinterpret_cast<decltype(api.MemoryHeapsFree)>(
        find("wgpuAdapterPropertiesMemoryHeapsFreeMembers", /*required=*/false));
  }
#undef TW_LOAD
  return api;
}

std::string to_string(WGPUStringView view) {
  if (view.data == nullptr) {
    return {};
  }
  return view.length == WGPU_STRLEN ? std::string(view.data) : std::string(view.data, view.length);
}

} // namespace torch_webgpu
