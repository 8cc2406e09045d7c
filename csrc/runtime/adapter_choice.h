// Which of the machine's adapters is used.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/device.h"

namespace torch_webgpu {

/// The index of the adapter that `wanted` names: an index or a part of a name; 0 if it is empty.
/// Raises kRuntime, with a list of the adapters, if none has that index or name.
size_t choose_adapter(const std::vector<AdapterInfo>& adapters, const std::string& wanted);

} // namespace torch_webgpu
