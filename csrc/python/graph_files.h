// What torch_webgpu/graphs needs to write a graph to a file and to read one.
#pragma once

#include <pybind11/pybind11.h>

namespace torch_webgpu {

void register_graph_files(pybind11::module_& m);

} // namespace torch_webgpu
