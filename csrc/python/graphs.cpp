#include "python/graphs.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "backend/graph.h"

namespace torch_webgpu {
namespace {

// Calls a method without the GIL: it may wait for the context's lock.
template <typename... Args>
auto method(void (CapturedGraph::*function)(Args...)) {
  return torch::wrap_pybind_function_no_gil(
      [function](CapturedGraph& graph, Args... args) { (graph.*function)(std::move(args)...); });
}

} // namespace

void register_graphs(pybind11::module_& m) {
  namespace py = pybind11;
  m.def("graph_pool", [] { return CapturedGraph::new_pool(); });
  m.def("is_capturing", [] { return CapturedGraph::is_capturing(); });
  py::class_<CapturedGraph, std::shared_ptr<CapturedGraph>>(m, "CapturedGraph")
      .def(py::init<bool>())
      .def("capture_begin", torch::wrap_pybind_function_no_gil(
                                [](CapturedGraph& graph, std::optional<c10::MempoolId_t> pool) {
                                  graph.capture_begin(pool.value_or(c10::MempoolId_t{0, 0}));
                                }))
      .def("capture_end", method(&CapturedGraph::capture_end))
      .def("abandon",
           torch::wrap_pybind_function_no_gil([](CapturedGraph& graph) { graph.abandon(); }))
      .def("instantiate", method(&CapturedGraph::instantiate))
      .def("replay", method(&CapturedGraph::replay))
      .def("update",
           torch::wrap_pybind_function_no_gil(
               [](CapturedGraph& graph, const CapturedGraph& capture) { graph.update(capture); }))
      .def("reset", method(&CapturedGraph::reset))
      .def("pool",
           torch::wrap_pybind_function([](const CapturedGraph& graph) { return graph.pool(); }))
      .def("debug_dump",
           torch::wrap_pybind_function_no_gil(
               [](const CapturedGraph& graph, const std::string& path) { graph.debug_dump(path); }))
      .def("names", torch::wrap_pybind_function_no_gil(
                        [](const CapturedGraph& graph, const at::Tensor& tensor) {
                          return graph.names(tensor);
                        }))
      .def("num_commands", torch::wrap_pybind_function(
                               [](const CapturedGraph& graph) { return graph.num_commands(); }));
}

} // namespace torch_webgpu
