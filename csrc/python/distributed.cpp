#include "python/distributed.h"

#ifdef TORCH_WEBGPU_DISTRIBUTED

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "distributed/process_group.h"
#include "distributed/statistics.h"

namespace torch_webgpu {
namespace {

namespace py = pybind11;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

// What torch.distributed makes in Python: split_group() and new_group() ask it for more than
// c10d::Backend has. Python drops its last reference under the GIL, which callbacks of futures may
// need on the threads that the destructor waits for.
class PythonProcessGroup final : public ProcessGroupWebGPU {
public:
  using ProcessGroupWebGPU::ProcessGroupWebGPU;
  bool supportsSplitting() const override { return true; }
  BackendPtr split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                   const c10::intrusive_ptr<Options>& options) override {
    BackendPtr part = split_cpu(store, ranks, options);
    return part ? c10::make_intrusive<PythonProcessGroup>(std::move(part)) : nullptr;
  }
  ~PythonProcessGroup() override {
    if (PyGILState_Check() != 0) {
      const py::gil_scoped_release others_may_run;
      drain();
    }
  }
};

c10::intrusive_ptr<PythonProcessGroup> process_group(BackendPtr cpu) {
  return c10::make_intrusive<PythonProcessGroup>(std::move(cpu));
}

std::map<std::string, uint64_t> statistics() {
  const CommunicationStatistics& sums = communication_statistics();
  return {{"collectives", sums.collectives},        {"bytes_read", sums.bytes_read},
          {"bytes_written", sums.bytes_written},    {"reading_ns", sums.reading},
          {"communicating_ns", sums.communicating}, {"writing_ns", sums.writing}};
}

} // namespace

void register_distributed(py::module_& m) {
  m.attr("has_distributed") = true;
  py::module_::import("torch.distributed"); // has the class of all backends
  py::class_<PythonProcessGroup, c10d::Backend, c10::intrusive_ptr<PythonProcessGroup>>(
      m, "ProcessGroup")
      .def_property_readonly("options", &PythonProcessGroup::getBackendOptions)
      // By which new_group() has processes take part in the making of groups of others, which NCCL
      // needs and Gloo does not.
      .def("perform_nocolor_split", [](const PythonProcessGroup&, const at::Device&) {});
  m.def("process_group", torch::wrap_pybind_function_no_gil(&process_group));
  m.def("communication_statistics", torch::wrap_pybind_function(&statistics));
}

} // namespace torch_webgpu

#else

namespace torch_webgpu {

void register_distributed(pybind11::module_& m) { m.attr("has_distributed") = false; }

} // namespace torch_webgpu

#endif
