// Which of the machine's adapters is used.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/device.h"

namespace torch_webgpu {

/// The index of the adapter that `wanted` names: an index or a part of a name; the first, where it
/// is empty. Raises kRuntime, and says what there is, if there is none.
size_t choose_adapter(const std::vector<AdapterInfo>& adapters, const std::string& wanted);

} // namespace torch_webgpu
