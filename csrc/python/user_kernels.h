#pragma once

#include <pybind11/pybind11.h>

namespace torch_webgpu {

/// params_binding, params_window: number and bytes of the binding that holds all uniforms.
/// shader_error(source): the compiler's message, empty for valid WGSL.
/// UserKernel(name, source, constants, operands, writable, digest) and .launch(tensors, uniforms,
/// x, y, z): what torch_webgpu/webgpu/shaders.py documents; the source's bindings are numbered as
/// csrc/launch/user_kernel.h says.
void register_user_kernels(pybind11::module_& m);

} // namespace torch_webgpu
