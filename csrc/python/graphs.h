// Captured graphs for torch_webgpu/graphs.
#pragma once

#include <pybind11/pybind11.h>

namespace torch_webgpu {

void register_graphs(pybind11::module_& m);

} // namespace torch_webgpu
