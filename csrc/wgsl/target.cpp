#include "wgsl/target.h"

#include <algorithm>
#include <charconv>
#include <tuple>
#include <utility>

#include "runtime/error.h"

namespace torch_webgpu {

std::string ShaderTarget::enables() const {
  std::string lines;
  if (shader_f16) {
    lines += "enable f16;\n";
  }
  if (subgroups) {
    lines += "enable subgroups;\n";
  }
  if (subgroup_matrix) {
    lines += "enable chromium_experimental_subgroup_matrix;\n";
  }
  for (const std::string& feature : language_features) {
    lines += "requires " + feature + ";\n";
  }
  return lines;
}

bool ShaderTarget::has_matrix_shape(const MatrixShape& shape) const {
  return std::ranges::find(matrix_shapes, shape) != matrix_shapes.end();
}

std::optional<bool> ShaderTarget::condition(std::string_view name_) const {
  constexpr std::string_view subgroups_of = "subgroups_of_";
  if (name_ == "native_f16") {
    return shader_f16;
  }
  if (name_ == "subgroups") {
    return subgroups;
  }
  if (name_ == "equal_subgroups") {
    return subgroups && subgroup_min_size == subgroup_max_size;
  }
  if (name_.starts_with(subgroups_of)) {
    uint32_t invocations = 0;
    const char* end = name_.data() + name_.size();
    const auto read = std::from_chars(name_.data() + subgroups_of.size(), end, invocations);
    if (read.ec == std::errc() && read.ptr == end) {
      return subgroups && subgroup_min_size >= invocations;
    }
  }
  return std::nullopt;
}

bool ShaderTarget::same_as(const ShaderTarget& other) const {
  const auto limits = [](const ShaderTarget& t) {
    return std::tie(t.max_storage_buffers, t.max_storage_binding_size, t.max_workgroup_storage,
                    t.max_workgroup_invocations, t.max_workgroups_per_dim,
                    t.storage_offset_alignment, t.max_elements, t.workgroups_to_fill);
  };
  return static_cast<const ShaderFeatures&>(*this) == other && limits(*this) == limits(other);
}

ShaderTarget target_of(const Capabilities& caps, const AdapterInfo& adapter) {
  ShaderTarget target;
  target.name = "device";
  static_cast<ShaderFeatures&>(target) = caps;
  target.max_storage_buffers = caps.max_storage_buffers;
  target.max_storage_binding_size = caps.max_storage_binding_size;
  target.max_workgroup_storage = caps.max_workgroup_storage;
  target.max_workgroup_invocations = caps.max_workgroup_invocations;
  target.max_workgroups_per_dim = caps.max_workgroups_per_dim;
  target.storage_offset_alignment = caps.storage_offset_alignment;
  target.workgroups_to_fill = adapter.software ? 16 : adapter.discrete ? 2048 : 256;
  return target;
}

ShaderTarget named_target(std::string_view name) {
  ShaderTarget target;
  target.name = name;
  if (name == "browser") {
    return target;
  }
  if (name == "swiftshader") {
    target.subgroups = true;
    target.subgroup_min_size = 4;
    target.subgroup_max_size = 4;
    target.workgroups_to_fill = 16;
    return target;
  }
  raise(ErrorKind::kRuntime, "there is no shader target named '" + std::string(name) + "'");
}

std::string excess(const ShaderTarget& target, const ShaderTarget& granted) {
  std::string text;
  const auto add = [&](const std::string& what) { text += (text.empty() ? "" : ", ") + what; };
  const auto feature = [&](const char* name, bool wanted, bool has) {
    if (wanted && !has) {
      add(name);
    }
  };
  feature("shader-f16", target.shader_f16, granted.shader_f16);
  feature("bitcasts to vec2<f16>", target.f16_bitcast, granted.f16_bitcast);
  feature("subgroups", target.subgroups, granted.subgroups);
  feature("subgroup-matrix", target.subgroup_matrix, granted.subgroup_matrix);
  feature("shapes of subgroup matrices",
          !std::ranges::all_of(
              target.matrix_shapes,
              [&](const MatrixShape& shape) { return granted.has_matrix_shape(shape); }),
          false);
  for (const std::string& name : target.language_features) {
    feature(name.c_str(), true, std::ranges::count(granted.language_features, name) != 0);
  }
  // Sizes of subgroups make no shader invalid. Whoever plans for others than the device's sees to
  // it that nothing is executed (scoped_target).
  const auto limit = [&](const char* name, uint64_t wanted, uint64_t has) {
    if (wanted > has) {
      add(std::string(name) + " of " + std::to_string(wanted) + " (the device has " +
          std::to_string(has) + ")");
    }
  };
  limit("max_storage_buffers", target.max_storage_buffers, granted.max_storage_buffers);
  limit("max_storage_binding_size", target.max_storage_binding_size,
        granted.max_storage_binding_size);
  limit("max_workgroup_storage", target.max_workgroup_storage, granted.max_workgroup_storage);
  limit("max_workgroup_invocations", target.max_workgroup_invocations,
        granted.max_workgroup_invocations);
  limit("max_workgroups_per_dimension", target.max_workgroups_per_dim,
        granted.max_workgroups_per_dim);
  limit("max_elements", target.max_elements, granted.max_elements);
  if (target.storage_offset_alignment % granted.storage_offset_alignment != 0) {
    add("storage_offset_alignment of " + std::to_string(target.storage_offset_alignment) +
        " (the device needs " + std::to_string(granted.storage_offset_alignment) + ")");
  }
  return text;
}

Targets::Targets(Context& context)
    : device_(target_of(context.device.caps(), context.device.info())) {}

const ShaderTarget& Targets::get(const ShaderTarget& target) {
  if (device_.same_as(target)) {
    return device_;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& known : others_) {
    if (known->same_as(target)) {
      return *known;
    }
  }
  if (const std::string missing = excess(target, device_); !missing.empty()) {
    raise(ErrorKind::kRuntime, "this device cannot run what is planned for target '" + target.name +
                                   "', which asks for more than it grants: " + missing);
  }
  auto made = std::make_unique<ShaderTarget>(target);
  made->number = static_cast<uint32_t>(others_.size() + 1);
  return *others_.emplace_back(std::move(made));
}

const ContextSlot<Targets> context_targets;

} // namespace torch_webgpu
