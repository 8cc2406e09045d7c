#include "runtime/shader_check.h"

#include "runtime/api.h"
#include "runtime/device.h"

namespace torch_webgpu {

std::string shader_error(const Device& device, const std::string& source) {
  return device
      .with_error_scopes([&] {
        WGPUShaderSourceWGSL wgsl = WGPU_SHADER_SOURCE_WGSL_INIT;
        wgsl.code = to_view(source);
        WGPUShaderModuleDescriptor descriptor = WGPU_SHADER_MODULE_DESCRIPTOR_INIT;
        descriptor.nextInChain = &wgsl.chain;
        WGPUShaderModule module =
            device.api().DeviceCreateShaderModule(device.handle(), &descriptor);
        device.api().ShaderModuleRelease(module);
      })
      .message;
}

} // namespace torch_webgpu
