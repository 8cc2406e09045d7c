#include "runtime/device.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "runtime/adapter_choice.h"
#include "runtime/api.h"
#include "runtime/dawn.h"
#include "runtime/error.h"
#include "runtime/platform.h"
#include "runtime/vulkan_order.h"

namespace torch_webgpu {
namespace {

const char* backend_name(WGPUBackendType type) {
  switch (type) {
  case WGPUBackendType_Null:
    return "null";
  case WGPUBackendType_Vulkan:
    return "vulkan";
  case WGPUBackendType_Metal:
    return "metal";
  case WGPUBackendType_D3D12:
    return "d3d12";
  case WGPUBackendType_D3D11:
    return "d3d11";
  case WGPUBackendType_OpenGL:
  case WGPUBackendType_OpenGLES:
    return "opengl";
  default:
    return "other";
  }
}

// The size of the largest heap that is local to the device, 0 if the runtime does not tell.
uint64_t largest_heap(const DawnMemoryHeaps& heaps) {
  uint64_t largest = 0;
  for (size_t i = 0; i < heaps.count; ++i) {
    const DawnMemoryHeap& heap = heaps.heaps[i];
    largest = std::max(largest, (heap.properties & kDawnHeapDeviceLocal) != 0 ? heap.size : 0);
  }
  return largest;
}

AdapterInfo describe(const Api& api, WGPUAdapter adapter, uint32_t* subgroup_sizes) {
  WGPUAdapterInfo raw = WGPU_ADAPTER_INFO_INIT;
  DawnMemoryHeaps heaps = {{nullptr, kDawnSTypeMemoryHeaps}, 0, nullptr};
  const bool lists_heaps = api.kind == RuntimeKind::kDawn && api.MemoryHeapsFree != nullptr &&
                           api.AdapterHasFeature(adapter, kDawnFeatureMemoryHeaps);
  if (lists_heaps) {
    raw.nextInChain = &heaps.chain;
  }
  api.AdapterGetInfo(adapter, &raw);
  raw.nextInChain = nullptr;
  AdapterInfo info;
  info.name = to_string(raw.device);
  info.vendor = to_string(raw.vendor);
  info.architecture = to_string(raw.architecture);
  info.driver = to_string(raw.description);
  info.backend = backend_name(raw.backendType);
  info.software = raw.adapterType == WGPUAdapterType_CPU;
  info.discrete = raw.adapterType == WGPUAdapterType_DiscreteGPU;
  if (lists_heaps) {
    info.memory_mib = static_cast<uint32_t>(largest_heap(heaps) >> 20);
    api.MemoryHeapsFree(heaps);
  }
  if (subgroup_sizes != nullptr) {
    subgroup_sizes[0] = raw.subgroupMinSize;
    subgroup_sizes[1] = raw.subgroupMaxSize;
  }
  api.AdapterInfoFreeMembers(raw);
  return info;
}

// TORCH_WEBGPU_BINDING_LIMIT lowers the adapter's limit, to test programs for smaller adapters.
uint64_t storage_binding_limit(uint64_t granted) {
  constexpr uint64_t kUnit = 256; // offsets of bindings are multiples of it
  const char* limit = std::getenv("TORCH_WEBGPU_BINDING_LIMIT");
  const uint64_t wanted = limit != nullptr ? std::strtoull(limit, nullptr, 10) : 0;
  return wanted == 0 ? granted : std::min(std::max(wanted / kUnit, uint64_t{1}) * kUnit, granted);
}

// The shapes that Dawn lists for an adapter with subgroup matrices.
std::vector<MatrixShape> matrix_shapes(const Api& api, WGPUAdapter adapter) {
  DawnSubgroupMatrixConfigs configs = {{nullptr, kDawnSTypeSubgroupMatrixConfigs}, 0, nullptr};
  WGPUAdapterInfo raw = WGPU_ADAPTER_INFO_INIT;
  raw.nextInChain = &configs.chain;
  api.AdapterGetInfo(adapter, &raw);
  raw.nextInChain = nullptr;
  std::vector<MatrixShape> shapes;
  for (size_t i = 0; i < configs.count; ++i) {
    const DawnSubgroupMatrixConfig& config = configs.configs[i];
    shapes.push_back({static_cast<MatrixType>(config.component_type),
                      static_cast<MatrixType>(config.result_component_type), config.m, config.n,
                      config.k, config.min_subgroup_size, config.max_subgroup_size});
  }
  api.AdapterInfoFreeMembers(raw);
  if (configs.configs != nullptr && api.SubgroupMatrixConfigsFree != nullptr) {
    api.SubgroupMatrixConfigsFree(configs);
  }
  return shapes;
}

WGPUInstance create_instance(const Api& api) {
  // Timed waits let WaitAny block. With allow_unsafe_apis, Dawn lists subgroup matrices.
  const WGPUInstanceFeatureName features[] = {WGPUInstanceFeatureName_TimedWaitAny};
  const char* const enabled[] = {"allow_unsafe_apis"};
  DawnTogglesDescriptor toggles = dawn_toggles(enabled, 1);
  WGPUInstanceDescriptor descriptor = WGPU_INSTANCE_DESCRIPTOR_INIT;
  if (api.kind == RuntimeKind::kDawn) {
    descriptor.nextInChain = &toggles.chain;
    descriptor.requiredFeatureCount = 1;
    descriptor.requiredFeatures = features;
  }
  WGPUInstance instance = api.CreateInstance(&descriptor);
  if (instance == nullptr) {
    raise(ErrorKind::kRuntime,
          "the WebGPU runtime '" + api.origin + "' could not create an instance");
  }
  return instance;
}

struct LanguageFeature {
  WGPUWGSLLanguageFeatureName value;
  const char* name;
};
constexpr LanguageFeature kLanguageFeatures[] = {
    {WGPUWGSLLanguageFeatureName_ReadonlyAndReadwriteStorageTextures,
     "readonly_and_readwrite_storage_textures"},
    {WGPUWGSLLanguageFeatureName_Packed4x8IntegerDotProduct, "packed_4x8_integer_dot_product"},
    {WGPUWGSLLanguageFeatureName_UnrestrictedPointerParameters, "unrestricted_pointer_parameters"},
    {WGPUWGSLLanguageFeatureName_PointerCompositeAccess, "pointer_composite_access"},
    {WGPUWGSLLanguageFeatureName_UniformBufferStandardLayout, "uniform_buffer_standard_layout"},
    {WGPUWGSLLanguageFeatureName_SubgroupId, "subgroup_id"},
    {WGPUWGSLLanguageFeatureName_TextureAndSamplerLet, "texture_and_sampler_let"},
    {WGPUWGSLLanguageFeatureName_SubgroupUniformity, "subgroup_uniformity"},
    {WGPUWGSLLanguageFeatureName_TextureFormatsTier1, "texture_formats_tier1"},
    {WGPUWGSLLanguageFeatureName_LinearIndexing, "linear_indexing"},
};

std::vector<std::string> language_features(const Api& api, WGPUInstance instance) {
  std::vector<std::string> names;
  if (api.InstanceGetWGSLLanguageFeatures == nullptr) {
    return names;
  }
  WGPUSupportedWGSLLanguageFeatures supported = WGPU_SUPPORTED_WGSL_LANGUAGE_FEATURES_INIT;
  api.InstanceGetWGSLLanguageFeatures(instance, &supported);
  for (const LanguageFeature& feature : kLanguageFeatures) {
    const auto* const end = supported.features + supported.featureCount;
    if (std::find(supported.features, end, feature.value) != end) {
      names.emplace_back(feature.name);
    }
  }
  api.SupportedWGSLLanguageFeaturesFreeMembers(supported);
  std::sort(names.begin(), names.end());
  return names;
}

struct FoundAdapter {
  WGPUAdapter handle = nullptr; // null: given only by an instance that lists it first
  AdapterInfo info;
  size_t vulkan_index = 0; // in vulkan_devices(), where the handle is null
};

void release(const Api& api, const FoundAdapter& found) {
  if (found.handle != nullptr) {
    api.AdapterRelease(found.handle);
  }
}

// All adapters of wgpu-native's first choice of drivers, so that none is there twice; two of a kind
// are two.
std::vector<FoundAdapter> enumerate_adapters(const Api& api, WGPUInstance instance) {
  const WgpuEnumerateAdapterOptions options = {nullptr, kWgpuPrimaryBackends};
  std::vector<WGPUAdapter> handles(api.InstanceEnumerateAdapters(instance, &options, nullptr));
  if (!handles.empty()) {
    handles.resize(api.InstanceEnumerateAdapters(instance, &options, handles.data()));
  }
  std::vector<FoundAdapter> found;
  for (WGPUAdapter handle : handles) {
    found.push_back({handle, describe(api, handle, nullptr)});
  }
  return found;
}

// webgpu.h has no way to list adapters: asks for each kind in turn and drops repeats. So of several
// GPUs of a kind only the first is found.
std::vector<FoundAdapter> request_adapters(const Api& api, WGPUInstance instance) {
  // Dawn writes two lines about limits of each adapter, which tell a user nothing.
  const platform::FilteredErrors errors("artificially reduced");
  struct Request {
    WGPUPowerPreference power;
    bool fallback;
  };
  const Request requests[] = {{WGPUPowerPreference_HighPerformance, false},
                              {WGPUPowerPreference_LowPower, false},
                              {WGPUPowerPreference_Undefined, true}};
  std::vector<FoundAdapter> found;
  for (const Request& request : requests) {
    struct Result {
      WGPUAdapter adapter = nullptr;
      bool done = false;
    } result;
    // Without this toggle Dawn hides shader-f16 on NVIDIA, where it works.
    const char* const enabled[] = {"vulkan_enable_f16_on_nvidia"};
    DawnTogglesDescriptor toggles = dawn_toggles(enabled, 1);
    WGPURequestAdapterOptions options = WGPU_REQUEST_ADAPTER_OPTIONS_INIT;
    options.powerPreference = request.power;
    options.forceFallbackAdapter = request.fallback;
    if (api.kind == RuntimeKind::kDawn) {
      options.nextInChain = &toggles.chain;
    }
    WGPURequestAdapterCallbackInfo callback = WGPU_REQUEST_ADAPTER_CALLBACK_INFO_INIT;
    callback.mode = WGPUCallbackMode_AllowProcessEvents;
    callback.userdata1 = &result;
    callback.callback = [](WGPURequestAdapterStatus status, WGPUAdapter adapter, WGPUStringView,
                           void* userdata, void*) {
      auto* out = static_cast<Result*>(userdata);
      out->adapter = status == WGPURequestAdapterStatus_Success ? adapter : nullptr;
      out->done = true;
    };
    api.InstanceRequestAdapter(instance, &options, callback);
    while (!result.done) {
      api.InstanceProcessEvents(instance);
    }
    if (result.adapter == nullptr) {
      continue;
    }
    AdapterInfo info = describe(api, result.adapter, nullptr);
    if (info.backend == "null") { // what Dawn gives where there is no driver: it executes nothing
      api.AdapterRelease(result.adapter);
      continue;
    }
    bool known = std::any_of(found.begin(), found.end(), [&](const FoundAdapter& other) {
      return other.info.name == info.name && other.info.backend == info.backend;
    });
    if (known) {
      api.AdapterRelease(result.adapter);
    } else {
      found.push_back({result.adapter, std::move(info)});
    }
  }
  return found;
}

// Behind each of Vulkan's adapters, its equals that the runtime does not give.
std::vector<FoundAdapter> with_equal_adapters(std::vector<FoundAdapter> given) {
  const auto is_vulkan = [](const FoundAdapter& found) { return found.info.backend == "vulkan"; };
  if (std::none_of(given.begin(), given.end(), is_vulkan)) {
    return given;
  }
  // Kept, because to ask makes an instance of Vulkan.
  static const std::vector<std::string> names = vulkan_devices();
  std::vector<FoundAdapter> all;
  for (FoundAdapter& found : given) {
    all.push_back(found);
    size_t equals = 0;
    for (size_t i = 0; i < names.size(); ++i) {
      if (is_vulkan(found) && names[i] == found.info.name && equals++ > 0) {
        all.push_back({nullptr, found.info, i});
      }
    }
  }
  return all;
}

// Best first.
std::vector<FoundAdapter> find_adapters(const Api& api, WGPUInstance instance) {
  std::vector<FoundAdapter> found;
  if (api.InstanceEnumerateAdapters != nullptr) {
    found = enumerate_adapters(api, instance);
  }
  if (found.empty()) {
    found = with_equal_adapters(request_adapters(api, instance));
  }
  auto rank = [](const AdapterInfo& info) { return info.software ? 2 : info.discrete ? 0 : 1; };
  std::stable_sort(found.begin(), found.end(), [&](const FoundAdapter& a, const FoundAdapter& b) {
    return rank(a.info) < rank(b.info);
  });
  return found;
}

} // namespace

std::vector<std::string> known_language_features() {
  std::vector<std::string> names;
  for (const LanguageFeature& feature : kLanguageFeatures) {
    names.emplace_back(feature.name);
  }
  return names;
}

void raise_invalid_ordinal(int64_t index, uint32_t num_devices) {
  raise(ErrorKind::kRuntime,
        "webgpu error: invalid device ordinal " + std::to_string(index) +
            (num_devices == 1 ? ", there is one device, webgpu:0"
                              : ", there are " + std::to_string(num_devices) + " devices"));
}

Device::Device(const RuntimeSource& source, const std::string& adapters_wanted, uint32_t position,
               bool debug)
    : api_(std::make_unique<Api>(load_api(source))), debug_(debug) {
  instance_ = create_instance(*api_);
  std::vector<FoundAdapter> adapters = find_adapters(*api_, instance_);
  std::vector<AdapterInfo> infos;
  for (const FoundAdapter& found : adapters) {
    infos.push_back(found.info);
  }
  const std::vector<size_t> chosen = choose_adapters(infos, adapters_wanted);
  num_devices_ = static_cast<uint32_t>(chosen.size());
  const size_t index = position < chosen.size() ? chosen[position] : adapters.size();
  for (size_t i = 0; i < adapters.size(); ++i) {
    if (i != index) {
      release(*api_, adapters[i]);
    }
  }
  if (index == adapters.size()) {
    raise_invalid_ordinal(position, num_devices_);
  }
  FoundAdapter& own = adapters[index];
  if (own.handle == nullptr) {
    const VulkanDeviceFirst order(own.vulkan_index);
    instance_ = create_instance(*api_);
    for (const FoundAdapter& found : request_adapters(*api_, instance_)) {
      if (own.handle == nullptr && found.info.name == own.info.name) {
        own.handle = found.handle;
      } else {
        release(*api_, found);
      }
    }
    if (own.handle == nullptr || !order.happened()) {
      raise(ErrorKind::kRuntime, "webgpu:" + std::to_string(position) + ", one of several equal '" +
                                     own.info.name +
                                     "', cannot be had: Vulkan's loader did not take the layer in "
                                     "share/vulkan/torch_webgpu_layer.json. "
                                     "TORCH_WEBGPU_ADAPTER chooses other devices");
    }
  }
  info_ = own.info;
  create_device(own.handle);
}

// Releases nothing. Contexts live until the process ends, when the driver frees everything.
// Destroying a device at exit, while the driver's threads still run, crashes some drivers.
Device::~Device() = default;

void Device::create_device(WGPUAdapter adapter) {
  uint32_t subgroup_sizes[2] = {0, 0};
  describe(*api_, adapter, subgroup_sizes);

  std::vector<WGPUFeatureName> features;
  auto want = [&](WGPUFeatureName feature) {
    if (api_->AdapterHasFeature(adapter, feature)) {
      features.push_back(feature);
    }
  };
  want(WGPUFeatureName_ShaderF16);
  want(WGPUFeatureName_Subgroups);
  want(WGPUFeatureName_TimestampQuery);
  if (api_->kind == RuntimeKind::kDawn) {
    want(kDawnFeatureSubgroupMatrix);
    if (info_.backend == "vulkan") { // others ask for addresses that are multiples of more
      want(kDawnFeatureHostMappedPointer);
    }
  }

  WGPULimits limits = WGPU_LIMITS_INIT;
  api_->AdapterGetLimits(adapter, &limits);
  limits.nextInChain = nullptr;

  // Release mode: no zero-initialization of workgroup memory and of buffers (tensors start
  // undefined). Robustness stays off for speed, so every kernel guards its own bounds; validation
  // stays on, because without it an invalid shader aborts the process.
  const char* const fast[] = {"disable_robustness", "disable_workgroup_init",
                              "disable_lazy_clear_for_mapped_at_creation_buffer"};
  const char* const slow[] = {"lazy_clear_resource_on_first_use", "timestamp_quantization"};
  const char* const debug_enabled[] = {"use_user_defined_labels_in_backend"};
  const char* const debug_disabled[] = {"timestamp_quantization"};
  DawnTogglesDescriptor toggles =
      debug_ ? dawn_toggles(debug_enabled, 1, debug_disabled, 1) : dawn_toggles(fast, 3, slow, 2);

  WGPUDeviceDescriptor descriptor = WGPU_DEVICE_DESCRIPTOR_INIT;
  if (api_->kind == RuntimeKind::kDawn) {
    descriptor.nextInChain = &toggles.chain;
  }
  descriptor.label = to_view("torch_webgpu");
  descriptor.requiredFeatureCount = features.size();
  descriptor.requiredFeatures = features.data();
  descriptor.requiredLimits = &limits;
  descriptor.uncapturedErrorCallbackInfo.userdata1 = this;
  descriptor.uncapturedErrorCallbackInfo.callback =
      [](WGPUDevice const*, WGPUErrorType, WGPUStringView message, void* userdata, void*) {
        static_cast<Device*>(userdata)->record_error(to_string(message));
      };
  descriptor.deviceLostCallbackInfo.mode = WGPUCallbackMode_AllowSpontaneous;
  descriptor.deviceLostCallbackInfo.userdata1 = this;
  descriptor.deviceLostCallbackInfo.callback = [](WGPUDevice const*, WGPUDeviceLostReason reason,
                                                  WGPUStringView message, void* userdata, void*) {
    if (reason != WGPUDeviceLostReason_Destroyed) {
      auto* device = static_cast<Device*>(userdata);
      device->lost_.store(true, std::memory_order_release);
      device->record_error("the WebGPU device was lost: " + to_string(message));
    }
  };

  struct Result {
    WGPUDevice device = nullptr;
    std::string message;
    bool done = false;
  } result;
  WGPURequestDeviceCallbackInfo callback = WGPU_REQUEST_DEVICE_CALLBACK_INFO_INIT;
  callback.mode = WGPUCallbackMode_AllowProcessEvents;
  callback.userdata1 = &result;
  callback.callback = [](WGPURequestDeviceStatus status, WGPUDevice device, WGPUStringView message,
                         void* userdata, void*) {
    auto* out = static_cast<Result*>(userdata);
    out->device = status == WGPURequestDeviceStatus_Success ? device : nullptr;
    out->message = to_string(message);
    out->done = true;
  };
  api_->AdapterRequestDevice(adapter, &descriptor, callback);
  while (!result.done) {
    api_->InstanceProcessEvents(instance_);
  }
  if (result.device == nullptr) {
    raise(ErrorKind::kRuntime,
          "the adapter '" + info_.name + "' could not create a device: " + result.message);
  }
  device_ = result.device;
  queue_ = api_->DeviceGetQueue(device_);

  WGPULimits granted = WGPU_LIMITS_INIT;
  api_->DeviceGetLimits(device_, &granted);
  caps_.shader_f16 = api_->DeviceHasFeature(device_, WGPUFeatureName_ShaderF16);
  caps_.f16_bitcast = caps_.shader_f16 && api_->kind == RuntimeKind::kDawn;
  caps_.subgroups = api_->kind == RuntimeKind::kDawn &&
                    api_->DeviceHasFeature(device_, WGPUFeatureName_Subgroups);
  caps_.timestamps = api_->DeviceHasFeature(device_, WGPUFeatureName_TimestampQuery);
  caps_.host_memory = api_->kind == RuntimeKind::kDawn &&
                      api_->DeviceHasFeature(device_, kDawnFeatureHostMappedPointer);
  caps_.subgroup_matrix = api_->kind == RuntimeKind::kDawn &&
                          api_->DeviceHasFeature(device_, kDawnFeatureSubgroupMatrix);
  if (caps_.subgroup_matrix) {
    caps_.matrix_shapes = matrix_shapes(*api_, adapter);
  }
  caps_.subgroup_min_size = subgroup_sizes[0];
  caps_.subgroup_max_size = subgroup_sizes[1];
  caps_.language_features = language_features(*api_, instance_);
  caps_.max_immediate_size = granted.maxImmediateSize;
  caps_.max_buffer_size = granted.maxBufferSize;
  caps_.max_storage_binding_size = storage_binding_limit(granted.maxStorageBufferBindingSize);
  caps_.max_uniform_binding_size = granted.maxUniformBufferBindingSize;
  caps_.max_storage_buffers = granted.maxStorageBuffersPerShaderStage;
  caps_.max_workgroup_storage = granted.maxComputeWorkgroupStorageSize;
  caps_.max_workgroup_invocations = granted.maxComputeInvocationsPerWorkgroup;
  caps_.max_workgroups_per_dim = granted.maxComputeWorkgroupsPerDimension;
  caps_.uniform_offset_alignment = granted.minUniformBufferOffsetAlignment;
  caps_.storage_offset_alignment = granted.minStorageBufferOffsetAlignment;
}

std::vector<AdapterInfo> Device::list_adapters(const RuntimeSource& source) {
  Api api = load_api(source);
  WGPUInstance instance = create_instance(api);
  std::vector<AdapterInfo> infos;
  for (FoundAdapter& adapter : find_adapters(api, instance)) {
    infos.push_back(std::move(adapter.info));
    release(api, adapter);
  }
  return infos;
}

void Device::process_events() const {
  if (api_->kind == RuntimeKind::kWgpuNative) {
    api_->DevicePoll(device_, /*wait=*/false, nullptr);
  } else {
    api_->InstanceProcessEvents(instance_);
  }
}

void Device::wait(Completion& completion) const {
  while (!completion.done.load(std::memory_order_acquire)) {
    if (api_->kind == RuntimeKind::kWgpuNative) {
      api_->DevicePoll(device_, /*wait=*/true, nullptr);
    } else {
      // A bounded wait, so that a lost device (whose futures may never fire) is noticed.
      WGPUFutureWaitInfo info = {{completion.future}, false};
      const uint64_t second = 1'000'000'000;
      const WGPUWaitStatus status = api_->InstanceWaitAny(instance_, 1, &info, second);
      if (status == WGPUWaitStatus_Error) {
        api_->InstanceProcessEvents(instance_);
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
    if (lost() && !completion.done.load(std::memory_order_acquire)) {
      const_cast<Device*>(this)->raise_pending_error();
    }
  }
}

void Device::record_error(const std::string& message) {
  std::lock_guard<std::mutex> lock(error_mutex_);
  if (error_.empty()) {
    error_ = message; // the first error is the cause, later ones follow from it
  }
  has_error_.store(true, std::memory_order_release);
}

void Device::raise_pending_error() {
  std::string message;
  {
    std::lock_guard<std::mutex> lock(error_mutex_);
    message = error_.empty() ? "the WebGPU device was lost" : error_;
    if (!lost()) { // a lost device stays lost: every later call says so
      error_.clear();
      has_error_.store(false, std::memory_order_release);
    }
  }
  raise(ErrorKind::kRuntime, "WebGPU error: " + message);
}

namespace {

// The buffer; or null, and why there is none.
std::pair<WGPUBuffer, Device::ScopedError> try_buffer(const Device& device,
                                                      const WGPUBufferDescriptor& descriptor) {
  WGPUBuffer buffer = nullptr;
  Device::ScopedError error = device.with_error_scopes(
      [&] { buffer = device.api().DeviceCreateBuffer(device.handle(), &descriptor); });
  if (!error.message.empty() && buffer != nullptr) {
    device.api().BufferRelease(buffer); // Dawn makes one that is invalid
    buffer = nullptr;
  }
  return {buffer, std::move(error)};
}

} // namespace

WGPUBuffer Device::create_buffer(uint64_t size, uint64_t usage, const char* label) const {
  WGPUBufferDescriptor descriptor = WGPU_BUFFER_DESCRIPTOR_INIT;
  descriptor.label = to_view(label);
  descriptor.usage = usage;
  descriptor.size = size;
  const auto [buffer, error] = try_buffer(*this, descriptor);
  if (buffer == nullptr) {
    raise(error.out_of_memory ? ErrorKind::kOutOfMemory : ErrorKind::kRuntime,
          std::string("could not create the ") + label + " buffer of " + std::to_string(size) +
              " bytes: " + error.message);
  }
  return buffer;
}

WGPUBuffer Device::create_buffer_over(const std::shared_ptr<void>& memory, uint64_t size,
                                      uint64_t usage) const {
  if (!caps_.host_memory || size > caps_.max_buffer_size) {
    return nullptr;
  }
  struct Kept {
    std::shared_ptr<void> memory;
  };
  // Whether Dawn calls `dispose` after an error is not documented. The memory is let go of either
  // way; without a call, only its pointer to `kept` is never freed. A refusal of the driver is an
  // error that no scope catches: it loses the device.
  const auto kept = std::make_shared<Kept>(Kept{memory});
  DawnHostMappedPointer pointer = {.chain = {nullptr, kDawnSTypeHostMappedPointer},
                                   .pointer = memory.get(),
                                   .dispose = nullptr,
                                   .userdata = new std::shared_ptr<Kept>(kept)};
  pointer.dispose = [](void* userdata) {
    const std::unique_ptr<std::shared_ptr<Kept>> own(static_cast<std::shared_ptr<Kept>*>(userdata));
    (*own)->memory.reset();
  };
  WGPUBufferDescriptor descriptor = WGPU_BUFFER_DESCRIPTOR_INIT;
  descriptor.nextInChain = &pointer.chain;
  descriptor.label = to_view("host memory");
  descriptor.usage = usage;
  descriptor.size = size;
  WGPUBuffer buffer = try_buffer(*this, descriptor).first;
  if (buffer == nullptr) {
    kept->memory.reset();
  }
  return buffer;
}

Device::ScopedError Device::with_error_scopes(const std::function<void()>& create) const {
  struct Scope {
    Completion completion;
    std::string message;
    bool failed = false;
  };
  std::vector<WGPUErrorFilter> filters = {WGPUErrorFilter_OutOfMemory, WGPUErrorFilter_Validation};
  if (api_->kind == RuntimeKind::kDawn) {
    filters.push_back(WGPUErrorFilter_Internal); // wgpu-native aborts on this filter
  }
  for (WGPUErrorFilter filter : filters) {
    api_->DevicePushErrorScope(device_, filter);
  }
  create();
  ScopedError error;
  for (auto filter = filters.rbegin(); filter != filters.rend(); ++filter) {
    Scope scope;
    WGPUPopErrorScopeCallbackInfo callback = WGPU_POP_ERROR_SCOPE_CALLBACK_INFO_INIT;
    callback.mode = WGPUCallbackMode_AllowProcessEvents;
    callback.userdata1 = &scope;
    callback.callback = [](WGPUPopErrorScopeStatus, WGPUErrorType type, WGPUStringView message,
                           void* userdata, void*) {
      auto* out = static_cast<Scope*>(userdata);
      out->failed = type != WGPUErrorType_NoError;
      out->message = to_string(message);
      out->completion.done.store(true, std::memory_order_release);
    };
    scope.completion.future = api_->DevicePopErrorScope(device_, callback).id;
    wait(scope.completion);
    if (scope.failed && error.message.empty()) {
      error.message = scope.message.empty() ? "unknown error" : scope.message;
      error.out_of_memory = *filter == WGPUErrorFilter_OutOfMemory;
    }
  }
  return error;
}

} // namespace torch_webgpu
