// The target that a shader is made for.
#pragma once

#include "runtime/device.h"

namespace torch_webgpu {

/// Features and limits that shaders and launches may count on: those of the device at hand, or
/// smaller ones, for shaders that are to run elsewhere.
using ShaderTarget = Capabilities;

} // namespace torch_webgpu
