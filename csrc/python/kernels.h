#pragma once

#include <pybind11/pybind11.h>

namespace torch_webgpu {

/// assemble_kernel(name, consts, operands, regions, features): the text of a kernel's shader.
/// Raises ValueError for names that do not exist, RuntimeError for a form that is none of the
/// kernel's.
void register_kernels(pybind11::module_& m);

} // namespace torch_webgpu
