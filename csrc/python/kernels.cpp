// What Python may ask of kernels: the shader of a form for any target, and the pieces that shaders
// are made of.
#include "python/kernels.h"

#include <c10/util/Exception.h>
#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <vector>

#include "python/targets.h"
#include "wgsl/assemble.h"
#include "wgsl/kernel_info.h"
#include "wgsl/kernel_source.h"
#include "wgsl/wgsl_library.h"
#include "wgsl/workgroup_memory.h"

namespace torch_webgpu {

DType dtype_named(const std::string& name) {
  for (uint32_t d = 0; d < kNumDTypes; ++d) {
    if (info(static_cast<DType>(d)).name == name) {
      return static_cast<DType>(d);
    }
  }
  TORCH_CHECK_VALUE(false, "there is no dtype ", name);
}

namespace {

// Name of the dtype ("" for an absent operand), slot, whether neighbours are whole words.
using PythonOperand = std::tuple<std::string, uint32_t, bool>;

std::string assemble_kernel(const std::string& name, const std::vector<uint32_t>& consts,
                            const std::vector<PythonOperand>& operands,
                            const std::vector<std::string>& regions, const std::string& target,
                            const TargetChanges& changes, uint32_t tensors) {
  const KernelInfo* kernel = find_kernel(name);
  TORCH_CHECK_VALUE(kernel != nullptr, "there is no kernel ", name);
  KernelForm form;
  form.consts = consts;
  form.regions = regions;
  form.tensors = tensors;
  for (const auto& [dtype, slot, whole_words] : operands) {
    TORCH_CHECK_VALUE(slot < kMaxBindings, "slot ", slot, " is beyond the last binding");
    KernelForm::Operand operand;
    operand.present = !dtype.empty();
    operand.dtype = operand.present ? dtype_named(dtype) : DType::kF32;
    operand.slot = static_cast<uint8_t>(slot);
    operand.whole_words = whole_words;
    form.operands.push_back(operand);
  }
  return assemble(name, *kernel, form, python_target(target, changes)).source;
}

// Bytes of an element, its type in registers in WGSL, and the field of a table's row that serves
// it.
std::tuple<uint32_t, std::string, std::string> dtype_info(const std::string& name) {
  const DTypeInfo& dtype = info(dtype_named(name));
  const auto field = [&] {
    switch (dtype.kind) {
    case Kind::kFloat:
      return "f32";
    case Kind::kInt:
      return "i32";
    case Kind::kLong:
      return "i64";
    case Kind::kComplex:
      return "c64";
    default: // a float64 is moved as bits
      return "raw";
    }
  };
  return {dtype.bytes, std::string(dtype.wgsl), field()};
}

} // namespace

void register_kernels(pybind11::module_& m) {
  m.def("assemble_kernel", &assemble_kernel, pybind11::arg("name"), pybind11::arg("consts"),
        pybind11::arg("operands"), pybind11::arg("regions"), pybind11::arg("target"),
        pybind11::arg("changes"), pybind11::arg("tensors"));
  m.def(
      "assemble_text",
      [](const std::string& text, const std::string& target, const TargetChanges& changes) {
        return assemble_text("text", text, python_target(target, changes));
      },
      pybind11::arg("text"), pybind11::arg("target"), pybind11::arg("changes"));
  m.def("dtype_info", &dtype_info, pybind11::arg("dtype"));
  m.def("load_expression", [](const std::string& dtype, const std::string& word) {
    return from_word(dtype_named(dtype), word);
  });
  m.def("store_expression", [](const std::string& dtype, const std::string& value) {
    return to_word(dtype_named(dtype), value);
  });
  m.def("library_for", [](const std::string& text) { return library_for(text); });
  m.def("workgroup_memory", [](const std::string& shader) { return workgroup_memory(shader); });
}

} // namespace torch_webgpu
