#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <map>
#include <string>

#include "wgsl/target.h"

namespace torch_webgpu {

using TargetChanges = std::map<std::string, uint64_t>;

/// The target `base` ("device", "browser" or "swiftshader") with other values of the features and
/// limits in `changes`, which have the names of torch.webgpu.get_device_properties(). Raises
/// ValueError for a name that does not exist.
ShaderTarget python_target(const std::string& base, const TargetChanges& changes);

/// push_target(base, changes), pop_target(), target_enables(base, changes);
/// start_recording(executes), stop_recording(): what torch_webgpu/wgsl.py documents.
void register_targets(pybind11::module_& m);

} // namespace torch_webgpu
