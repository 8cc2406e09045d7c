// Planning for other targets than the device, and the commands that come of it.
#include "python/targets.h"

#include <c10/util/Exception.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "launch/target_scope.h"
#include "runtime/commands/command_list.h"
#include "runtime/context.h"

namespace torch_webgpu {
namespace {

template <typename Field>
void assign(Field& field, const std::string& name, uint64_t value) {
  TORCH_CHECK_VALUE(value <= std::numeric_limits<Field>::max(), name, " cannot be ", value);
  field = static_cast<Field>(value);
}

// In the order of their names, so that equal targets have equal lists.
void set_language_feature(std::vector<std::string>& features, const std::string& name, bool has) {
  const auto at = std::ranges::lower_bound(features, name);
  const bool had = at != features.end() && *at == name;
  if (has && !had) {
    features.insert(at, name);
  } else if (had && !has) {
    features.erase(at);
  }
}

void change(ShaderTarget& target, const std::string& name, uint64_t value) {
  const auto to = [&](auto& field) { assign(field, name, value); };
  const std::map<std::string, std::function<void()>> fields = {
      {"shader-f16",
       [&] {
         to(target.shader_f16);
         to(target.f16_bitcast);
       }},
      {"f16-bitcast", [&] { to(target.f16_bitcast); }},
      {"subgroups", [&] { to(target.subgroups); }},
      {"subgroup-matrix", [&] { to(target.subgroup_matrix); }},
      {"chromium-experimental-subgroup-matrix", [&] { to(target.subgroup_matrix); }},
      {"subgroup_min_size", [&] { to(target.subgroup_min_size); }},
      {"subgroup_max_size", [&] { to(target.subgroup_max_size); }},
      {"max_storage_buffers", [&] { to(target.max_storage_buffers); }},
      {"max_storage_binding_size", [&] { to(target.max_storage_binding_size); }},
      {"max_workgroup_storage", [&] { to(target.max_workgroup_storage); }},
      {"max_workgroup_invocations", [&] { to(target.max_workgroup_invocations); }},
      {"max_workgroups_per_dimension", [&] { to(target.max_workgroups_per_dim); }},
      {"max_elements", [&] { to(target.max_elements); }},
      {"workgroups_to_fill", [&] { to(target.workgroups_to_fill); }},
      {"storage_offset_alignment", [&] { to(target.storage_offset_alignment); }},
  };
  if (std::ranges::count(known_language_features(), name) != 0) {
    set_language_feature(target.language_features, name, value != 0);
    return;
  }
  const auto found = fields.find(name);
  TORCH_CHECK_VALUE(found != fields.end(), "a shader target has no feature or limit ", name);
  found->second();
}

// Of a dispatch: label, bytes of each storage binding, grid. The error words count as a binding.
using Dispatch = std::tuple<std::string, std::vector<uint64_t>, Grid>;

std::unique_ptr<CommandList> recording;
Context* recorded = nullptr; // the context that it is of

void start_recording(bool executes) {
  auto list = std::make_unique<CommandList>(executes);
  recorded = &current_context();
  recorded->stream.set_recorder(list.get());
  recording = std::move(list);
}

std::vector<Dispatch> stop_recording() {
  recorded->stream.set_recorder(nullptr);
  std::vector<Dispatch> out;
  for (const CommandList::Command& command : recording->commands()) {
    const auto* dispatch = std::get_if<CommandList::Dispatch>(&command);
    if (dispatch == nullptr) {
      continue;
    }
    std::vector<uint64_t> sizes;
    for (const Binding& binding : dispatch->bindings) {
      sizes.push_back(binding.size);
    }
    if (dispatch->pipeline->layout->binding.checks_indices) {
      sizes.push_back(kErrorWords * sizeof(uint32_t));
    }
    out.emplace_back(dispatch->pipeline->label, std::move(sizes), dispatch->grid);
  }
  recording.reset();
  return out;
}

} // namespace

ShaderTarget python_target(const std::string& base, const TargetChanges& changes) {
  TORCH_CHECK_VALUE(base == "device" || base == "browser" || base == "swiftshader",
                    "there is no shader target named '", base, "'");
  ShaderTarget target =
      base == "device" ? context_targets.of(current_context()).device() : named_target(base);
  // shader-f16 sets f16-bitcast too, so that one comes last.
  for (const bool is_bitcast : {false, true}) {
    for (const auto& [name, value] : changes) {
      if ((name == "f16-bitcast") == is_bitcast) {
        change(target, name, value);
      }
    }
  }
  if (!changes.empty()) {
    target.name += " with changes";
  }
  return target;
}

void register_targets(pybind11::module_& m) {
  m.def("push_target", torch::wrap_pybind_function_no_gil(
                           [](const std::string& base, const TargetChanges& changes) {
                             push_target(python_target(base, changes));
                           }));
  m.def("pop_target", torch::wrap_pybind_function_no_gil([] { pop_target(); }));
  m.def("target_storage_buffers", torch::wrap_pybind_function_no_gil([] {
          return plan_target(current_context()).max_storage_buffers;
        }));
  m.def("target_is_software", torch::wrap_pybind_function_no_gil(
                                  [] { return is_software(plan_target(current_context())); }));
  m.def("target_enables", torch::wrap_pybind_function_no_gil(
                              [](const std::string& base, const TargetChanges& changes) {
                                return python_target(base, changes).enables();
                              }));
  m.def("start_recording", torch::wrap_pybind_function_no_gil(&start_recording));
  m.def("stop_recording", torch::wrap_pybind_function_no_gil(&stop_recording));
}

} // namespace torch_webgpu
