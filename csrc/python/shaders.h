#pragma once

#include <pybind11/pybind11.h>

namespace torch_webgpu {

/// Adds _shader_sources(target, changes) to the module: the (label, WGSL) pairs of every kernel
/// file and of the generated variants of every table row, for the tests that validate them.
void register_shader_sources(pybind11::module_& m);

} // namespace torch_webgpu
