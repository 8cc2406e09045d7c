// Which webgpu device is meant: indices, and the current device of a thread.
#pragma once

#include <c10/core/Device.h>

#include "runtime/context.h"

namespace torch_webgpu {

inline constexpr c10::DeviceType kWebGPU = c10::DeviceType::PrivateUse1;

/// The thread's current device: what a device without an index means. 0 where none was set.
c10::DeviceIndex current_device();
/// Makes it the thread's current device and returns the one before; a negative index changes
/// nothing. Loads no drivers: accepts every index for which autograd may have a thread, raises as
/// check_ordinal for others.
c10::DeviceIndex exchange_device(c10::DeviceIndex index);

/// Raises RuntimeError, with PyTorch's words, if no device has that index. Index 0 needs no check.
/// Others may load drivers.
void check_ordinal(c10::DeviceIndex index);
/// The index that is meant: that of the current device for a negative one. Raises as check_ordinal.
c10::DeviceIndex resolve_ordinal(c10::DeviceIndex index);

inline c10::Device webgpu_device(c10::DeviceIndex index) { return {kWebGPU, index}; }
/// The current device.
inline c10::Device webgpu_device() { return webgpu_device(current_device()); }
/// The device of a context.
inline c10::Device device_of(const Context& context) {
  return webgpu_device(static_cast<c10::DeviceIndex>(context.index));
}

/// The context of the current device, for work that has no operand to say where. Creates it.
inline Context& current_context() { return context(static_cast<uint32_t>(current_device())); }

} // namespace torch_webgpu
