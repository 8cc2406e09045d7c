// Which of the machine's adapters are devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/device.h"

namespace torch_webgpu {

/// The most devices of a process.
inline constexpr uint32_t kMostDevices = 8;

/// The adapter of each device, as an index into `adapters`. `wanted` is an index, a part of a name,
/// or several of these with commas between them; an adapter that is named twice is two devices. If
/// it is empty: all that are GPUs, else the first. Raises kRuntime, with a list of the adapters, if
/// none has that index or name, and for more than kMostDevices.
std::vector<size_t> choose_adapters(const std::vector<AdapterInfo>& adapters,
                                    const std::string& wanted);

/// The most devices that `wanted` can name, whatever adapters there are.
uint32_t most_named(const std::string& wanted);

} // namespace torch_webgpu
