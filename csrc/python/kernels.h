#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "wgsl/dtype.h"

namespace torch_webgpu {

/// The dtype of that name. Raises ValueError if there is none.
DType dtype_named(const std::string& name);

/// assemble_kernel(name, consts, operands, regions, target, changes): the text of a kernel's
/// shader for a target, see python_target. Raises ValueError for names that do not exist,
/// RuntimeError for a form that is none of the kernel's. dtype_info(dtype), load_expression(dtype,
/// word), store_expression(dtype, value), library_for(text): what torch_webgpu/wgsl.py documents.
/// Raise ValueError for an unknown dtype.
void register_kernels(pybind11::module_& m);

} // namespace torch_webgpu
