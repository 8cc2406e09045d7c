// Whether a shader that someone else wrote is valid.
#pragma once

#include <string>

namespace torch_webgpu {

class Device;

/// The compiler's message, empty if the WGSL is valid. The device stays usable.
std::string shader_error(const Device& device, const std::string& source);

} // namespace torch_webgpu
