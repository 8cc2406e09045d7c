// What torch.webgpu.compile_shader needs of the device.
#include "python/user_kernels.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <string>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "launch/user_kernel.h"
#include "runtime/shader_check.h"

namespace torch_webgpu {
namespace {

namespace py = pybind11;

std::shared_ptr<UserKernel> make(std::string name, std::string source,
                                 std::vector<std::pair<std::string, double>> constants,
                                 std::vector<std::string> operands, uint32_t writable,
                                 std::string digest) {
  return std::make_shared<UserKernel>(UserKernel::Spec{std::move(name), std::move(source),
                                                       std::move(constants), std::move(operands),
                                                       writable, std::move(digest)});
}

void launch(const UserKernel& kernel, const std::vector<at::Tensor>& tensors,
            const std::string& uniforms, uint32_t x, uint32_t y, uint32_t z) {
  kernel.launch(tensors, uniforms, {x, y, z});
}

} // namespace

void register_user_kernels(py::module_& m) {
  m.attr("params_binding") = kParamsBinding;
  m.attr("params_window") = kParamsWindow;
  m.def("shader_error", torch::wrap_pybind_function_no_gil([](const std::string& source) {
          return shader_error(current_context().device, source);
        }));
  py::class_<UserKernel, std::shared_ptr<UserKernel>>(m, "UserKernel")
      .def(py::init(torch::wrap_pybind_function_no_gil(&make)))
      .def("launch", torch::wrap_pybind_function_no_gil(&launch));
}

} // namespace torch_webgpu
