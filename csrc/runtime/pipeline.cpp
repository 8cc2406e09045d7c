#include "runtime/pipeline.h"

#include <atomic>
#include <functional>

#include "runtime/api.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/pipeline_build.h"

namespace torch_webgpu {

const PipelineLayout& PipelineCache::layout(const BindingLayout& binding) {
  for (const auto& known : layouts_) { // a few dozen at most, and only asked for new pipelines
    if (known->binding == binding) {
      return *known;
    }
  }
  const uint32_t total = binding.num_buffers + (binding.checks_indices ? 1 : 0);
  if (total > device_.caps().max_storage_buffers || binding.num_buffers > kMaxBindings) {
    raise(ErrorKind::kRuntime, "a kernel binds " + std::to_string(total) +
                                   " storage buffers, and the limit of this device is " +
                                   std::to_string(device_.caps().max_storage_buffers));
  }
  std::vector<WGPUBindGroupLayoutEntry> entries;
  auto add = [&](uint32_t number, WGPUBufferBindingType type, bool dynamic) {
    WGPUBindGroupLayoutEntry entry = WGPU_BIND_GROUP_LAYOUT_ENTRY_INIT;
    entry.binding = number;
    entry.visibility = WGPUShaderStage_Compute;
    entry.buffer.type = type;
    entry.buffer.hasDynamicOffset = dynamic;
    entries.push_back(entry);
  };
  for (uint32_t i = 0; i < binding.num_buffers; ++i) {
    const bool writable = (binding.writable >> i & 1) != 0;
    add(i, writable ? WGPUBufferBindingType_Storage : WGPUBufferBindingType_ReadOnlyStorage, false);
  }
  if (binding.checks_indices) {
    add(kErrorsBinding, WGPUBufferBindingType_Storage, false);
  }
  add(kParamsBinding, WGPUBufferBindingType_Uniform, true);

  auto made = std::make_unique<PipelineLayout>();
  made->binding = binding;
  WGPUBindGroupLayoutDescriptor group = WGPU_BIND_GROUP_LAYOUT_DESCRIPTOR_INIT;
  group.entryCount = entries.size();
  group.entries = entries.data();
  made->group = device_.api().DeviceCreateBindGroupLayout(device_.handle(), &group);
  WGPUPipelineLayoutDescriptor descriptor = WGPU_PIPELINE_LAYOUT_DESCRIPTOR_INIT;
  descriptor.bindGroupLayoutCount = 1;
  descriptor.bindGroupLayouts = &made->group;
  made->layout = device_.api().DeviceCreatePipelineLayout(device_.handle(), &descriptor);
  layouts_.push_back(std::move(made));
  return *layouts_.back();
}

namespace {

std::unique_ptr<Pipeline> unbuilt(const PipelineSpec& spec, const PipelineLayout& layout) {
  static std::atomic<uint64_t> created{0};
  auto pipeline = std::make_unique<Pipeline>();
  pipeline->serial = ++created;
  pipeline->label = spec.label;
  pipeline->random_at = spec.random_at;
  pipeline->source = spec.source;
  pipeline->entry = spec.entry;
  pipeline->constants = spec.constants;
  pipeline->layout = &layout;
  return pipeline;
}

// Calls `build` with the description of the pipeline. Returns the errors of the shader and of what
// `build` does before it returns.
Device::ScopedError
describe(const Device& device, const Pipeline& pipeline,
         const std::function<void(const WGPUComputePipelineDescriptor&)>& build) {
  return device.with_error_scopes([&] {
    WGPUShaderSourceWGSL wgsl = WGPU_SHADER_SOURCE_WGSL_INIT;
    wgsl.code = to_view(pipeline.source);
    WGPUShaderModuleDescriptor module_descriptor = WGPU_SHADER_MODULE_DESCRIPTOR_INIT;
    module_descriptor.nextInChain = &wgsl.chain;
    module_descriptor.label = to_view(pipeline.label);
    WGPUShaderModule module =
        device.api().DeviceCreateShaderModule(device.handle(), &module_descriptor);

    std::vector<WGPUConstantEntry> constants;
    for (const auto& [name, value] : pipeline.constants) {
      WGPUConstantEntry entry = WGPU_CONSTANT_ENTRY_INIT;
      entry.key = to_view(name);
      entry.value = value;
      constants.push_back(entry);
    }
    WGPUComputePipelineDescriptor descriptor = WGPU_COMPUTE_PIPELINE_DESCRIPTOR_INIT;
    descriptor.label = to_view(pipeline.label);
    descriptor.layout = pipeline.layout->layout;
    descriptor.compute.module = module;
    descriptor.compute.entryPoint = to_view(pipeline.entry);
    descriptor.compute.constantCount = constants.size();
    descriptor.compute.constants = constants.data();
    build(descriptor);
    device.api().ShaderModuleRelease(module);
  });
}

} // namespace

std::unique_ptr<Pipeline> PipelineCache::create(const PipelineSpec& spec) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  auto pipeline = unbuilt(spec, layout(spec.binding));
  const Device::ScopedError error =
      describe(device_, *pipeline, [&](const WGPUComputePipelineDescriptor& descriptor) {
        pipeline->handle = device_.api().DeviceCreateComputePipeline(device_.handle(), &descriptor);
      });
  if (!error.message.empty()) {
    const std::string source = device_.debug() ? "\n" + spec.source : "";
    if (spec.operands.empty() || error.out_of_memory) {
      raise(ErrorKind::kRuntime,
            "could not build the WebGPU pipeline of " + spec.label + ": " + error.message + source);
    }
    // The usual cause: the kernel was not written for these dtypes.
    raise(ErrorKind::kNotImplemented,
          spec.label + "(): not implemented for these operands: its kernel does not compile for (" +
              spec.operands + ").\nThe shader compiler's message: " + error.message + source);
  }
  return pipeline;
}

std::shared_ptr<PipelineBuild> PipelineBuild::start(const Device& device, PipelineCache& cache,
                                                    const PipelineSpec& spec) {
  const Api& api = device.api();
  if (api.DeviceCreateComputePipelineAsync == nullptr) {
    return nullptr;
  }
  auto build = std::make_shared<PipelineBuild>();
  build->pipeline_ = unbuilt(spec, cache.layout(spec.binding));
  WGPUCreateComputePipelineAsyncCallbackInfo callback =
      WGPU_CREATE_COMPUTE_PIPELINE_ASYNC_CALLBACK_INFO_INIT;
  // Called on whichever thread has built it, so that nobody needs to ask the instance for events.
  callback.mode = WGPUCallbackMode_AllowSpontaneous;
  callback.callback = [](WGPUCreatePipelineAsyncStatus, WGPUComputePipeline handle, WGPUStringView,
                         void* userdata, void*) {
    // The runtime's share of the build.
    const std::unique_ptr<std::shared_ptr<PipelineBuild>> owner(
        static_cast<std::shared_ptr<PipelineBuild>*>(userdata));
    PipelineBuild& ended = **owner;
    const std::lock_guard<std::mutex> lock(ended.mutex_);
    ended.pipeline_->handle = handle;
    ended.has_ended_ = true;
    ended.ended_.notify_all();
  };
  const Device::ScopedError error =
      describe(device, *build->pipeline_, [&](const WGPUComputePipelineDescriptor& descriptor) {
        callback.userdata1 = new std::shared_ptr<PipelineBuild>(build);
        api.DeviceCreateComputePipelineAsync(device.handle(), &descriptor, callback);
      });
  return error.message.empty() ? build : nullptr;
}

void PipelineBuild::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  ended_.wait(lock, [&] { return has_ended_; });
}

std::unique_ptr<Pipeline> PipelineBuild::finish() {
  wait();
  return pipeline_->handle != nullptr ? std::move(pipeline_) : nullptr;
}

} // namespace torch_webgpu
