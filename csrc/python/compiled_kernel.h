#pragma once

#include <pybind11/pybind11.h>

namespace torch_webgpu {

/// CompiledKernel(name, operands, num_integers, checks, make_text): what a module that Inductor
/// wrote calls as kernel(tensors..., integers..., groups). torch_webgpu/inductor/runtime.py makes
/// them.
void register_compiled_kernel(pybind11::module_& m);

} // namespace torch_webgpu
