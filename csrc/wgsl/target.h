// What shaders are made for, and launches planned for.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/context.h"

namespace torch_webgpu {

/// What a shader may count on, and what a launch must keep to. Nothing else of a device decides
/// what a shader looks like and how work is cut into dispatches. Sizes in bytes. The defaults are
/// those that a browser gives without being asked for more.
struct ShaderTarget : ShaderFeatures {
  std::string name; // for errors; equal targets may have different ones

  // Limits.
  uint32_t max_storage_buffers = 8; // per shader stage, the error words included
  uint64_t max_storage_binding_size = uint64_t{128} << 20;
  uint32_t max_workgroup_storage = 16384;
  uint32_t max_workgroup_invocations = 256;
  uint32_t max_workgroups_per_dim = 65535;
  uint32_t storage_offset_alignment = 256;

  // Elements that a kernel counts: no limit of WebGPU, but of our 32-bit indices.
  uint64_t max_elements = uint64_t{1} << 31;

  /// Workgroups that keep the device busy: how far it pays to split work.
  uint32_t workgroups_to_fill = 256;

  /// Given by Targets: 0 for the device's own, the same for equal ones. Part of the pipeline key.
  uint32_t number = 0;

  /// The `enable` and `requires` lines of a shader that uses everything that the target has.
  std::string enables() const;
  bool has_matrix_shape(const MatrixShape& shape) const;
  /// The value of a condition of `@if` that asks for nothing but the target: `subgroups`,
  /// `subgroups_of_N` (each has at least N invocations), `equal_subgroups` (all have the same
  /// number, which is known) or `native_f16`. Nothing for another name.
  std::optional<bool> condition(std::string_view name) const;
  /// Whether both make the same shaders and plans.
  bool same_as(const ShaderTarget& other) const;
};

/// The target that describes a device.
ShaderTarget target_of(const Capabilities& caps, const AdapterInfo& adapter);
/// "browser" or "swiftshader"; raises kRuntime for another name.
ShaderTarget named_target(std::string_view name);
/// What `target` asks for that `granted` does not have, for an error; empty if there is nothing.
std::string excess(const ShaderTarget& target, const ShaderTarget& granted);

/// The targets that a context has planned for.
class Targets {
public:
  explicit Targets(Context& context);

  /// The context's device.
  const ShaderTarget& device() const { return device_; }
  /// The same target with its number. Raises kRuntime if the device grants less than it asks for.
  const ShaderTarget& get(const ShaderTarget& target);

private:
  const ShaderTarget device_;
  std::vector<std::unique_ptr<const ShaderTarget>> others_; // number 1 and on
  std::mutex mutex_;
};

extern const ContextSlot<Targets> context_targets;

} // namespace torch_webgpu
