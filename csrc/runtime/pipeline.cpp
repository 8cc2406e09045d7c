#include "runtime/pipeline.h"

#include <atomic>

#include "runtime/api.h"
#include "runtime/device.h"
#include "runtime/error.h"

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

std::unique_ptr<Pipeline> PipelineCache::create(const PipelineSpec& spec) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  static std::atomic<uint64_t> created{0};
  auto pipeline = std::make_unique<Pipeline>();
  pipeline->serial = ++created;
  pipeline->label = spec.label;
  pipeline->random_at = spec.random_at;
  pipeline->source = spec.source;
  pipeline->entry = spec.entry;
  pipeline->constants = spec.constants;
  pipeline->layout = &layout(spec.binding);

  const Device::ScopedError error = device_.with_error_scopes([&] {
    WGPUShaderSourceWGSL wgsl = WGPU_SHADER_SOURCE_WGSL_INIT;
    wgsl.code = to_view(spec.source);
    WGPUShaderModuleDescriptor module_descriptor = WGPU_SHADER_MODULE_DESCRIPTOR_INIT;
    module_descriptor.nextInChain = &wgsl.chain;
    module_descriptor.label = to_view(spec.label);
    WGPUShaderModule module =
        device_.api().DeviceCreateShaderModule(device_.handle(), &module_descriptor);

    std::vector<WGPUConstantEntry> constants;
    for (const auto& [name, value] : spec.constants) {
      WGPUConstantEntry entry = WGPU_CONSTANT_ENTRY_INIT;
      entry.key = to_view(name);
      entry.value = value;
      constants.push_back(entry);
    }
    WGPUComputePipelineDescriptor descriptor = WGPU_COMPUTE_PIPELINE_DESCRIPTOR_INIT;
    descriptor.label = to_view(spec.label);
    descriptor.layout = pipeline->layout->layout;
    descriptor.compute.module = module;
    descriptor.compute.entryPoint = to_view(spec.entry);
    descriptor.compute.constantCount = constants.size();
    descriptor.compute.constants = constants.data();
    pipeline->handle = device_.api().DeviceCreateComputePipeline(device_.handle(), &descriptor);
    device_.api().ShaderModuleRelease(module);
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

} // namespace torch_webgpu
