#include "python/compiled_kernel.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <array>
#include <string>
#include <tuple>
#include <vector>

#include "launch/compiled_kernel.h"
#include "python/kernels.h"

namespace torch_webgpu {
namespace {

namespace py = pybind11;

// Name, dtype, writable, atomic_add, vector_bytes.
using PythonOperand = std::tuple<std::string, std::string, bool, bool, uint32_t>;
// Message, and whether it is about an index.
using PythonCheck = std::pair<std::string, bool>;
// Slot, wide, host.
using PythonPlace = std::tuple<uint32_t, bool, bool>;
using PythonMakeText = std::function<std::string(std::vector<PythonPlace>, std::string)>;

constexpr uint32_t kMaxIntegers = kParamsWindow / 4;

CompiledKernel make_kernel(const std::string& name, const std::vector<PythonOperand>& operands,
                           uint32_t num_integers, const std::vector<PythonCheck>& checks,
                           const PythonMakeText& make_text) {
  TORCH_CHECK_VALUE(num_integers <= kMaxIntegers, name, ": too many integers for one kernel");
  std::vector<CompiledOperand> own_operands;
  for (const auto& [operand, dtype, writable, atomic_add, vector_bytes] : operands) {
    own_operands.push_back({operand, dtype_named(dtype), writable, atomic_add, vector_bytes});
  }
  std::vector<CompiledCheck> own_checks;
  for (const auto& [message, is_index] : checks) {
    own_checks.push_back({message, is_index ? ErrorKind::kIndex : ErrorKind::kRuntime});
  }
  auto own_make_text = [make_text](const std::vector<CompiledPlace>& places,
                                   const std::string& declarations) {
    py::gil_scoped_acquire gil;
    std::vector<PythonPlace> given;
    for (const CompiledPlace& place : places) {
      given.emplace_back(place.slot, place.wide, place.host);
    }
    return make_text(given, declarations);
  };
  return CompiledKernel(name, std::move(own_operands), num_integers, std::move(own_checks),
                        own_make_text);
}

void call(CompiledKernel& kernel, const py::args& args) {
  const size_t tensors = kernel.num_operands();
  const size_t integers = kernel.num_integers();
  if (args.size() != tensors + integers + 1) {
    throw py::type_error(kernel.label() + " takes " + std::to_string(tensors) + " tensors, " +
                         std::to_string(integers) + " integers and the number of workgroups, not " +
                         std::to_string(args.size()) + " arguments");
  }
  std::array<const at::TensorBase*, CompiledKernel::kMaxOperands> operands;
  for (size_t k = 0; k < tensors; ++k) {
    PyObject* object = PyTuple_GET_ITEM(args.ptr(), k);
    if (!THPVariable_Check(object)) {
      throw py::type_error(kernel.label() + ": argument " + std::to_string(k) + " is no tensor");
    }
    operands[k] = &THPVariable_Unpack(object);
  }
  std::array<int64_t, kMaxIntegers + 1> values;
  for (size_t k = 0; k <= integers; ++k) {
    values[k] = PyLong_AsLongLong(PyTuple_GET_ITEM(args.ptr(), tensors + k));
    if (values[k] == -1 && PyErr_Occurred() != nullptr) {
      throw py::error_already_set();
    }
  }
  kernel.launch(operands.data(), values.data(), values[integers]);
}

} // namespace

void register_compiled_kernel(py::module_& m) {
  py::class_<CompiledKernel>(m, "CompiledKernel")
      .def(py::init(&make_kernel), py::arg("name"), py::arg("operands"), py::arg("num_integers"),
           py::arg("checks"), py::arg("make_text"))
      .def("__call__", torch::wrap_pybind_function(&call))
      .def("prepare",
           torch::wrap_pybind_function_no_gil([](CompiledKernel& kernel) { kernel.prepare(); }))
      .def("by_elements", torch::wrap_pybind_function(&CompiledKernel::by_elements),
           py::arg("operands"))
      .def("source", &CompiledKernel::source)
      .def_property_readonly("name", &CompiledKernel::label);
}

} // namespace torch_webgpu
