// Parameters of dispatches, and small uploads, that wait to be written to the device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "runtime/handles.h"

namespace torch_webgpu {

class Device;

/// What the commands of the open encoder read from the host. It is written to the device at once,
/// right before the submit that uses it. The queue is ordered, so earlier submits are not affected.
class ParameterRing {
public:
  static constexpr uint32_t kBytes = 1u << 20;

  explicit ParameterRing(Device& device);

  bool has_room(uint32_t bytes) const { return used_ + bytes <= kBytes; }
  /// Copies `data` behind what is there, and returns its offset, which a binding may start at.
  /// There must be room.
  uint32_t push(const void* data, uint32_t bytes) {
    const uint32_t offset = used_;
    std::memcpy(host_.data() + offset, data, bytes);
    used_ = std::min(kBytes, (offset + bytes + alignment_ - 1) / alignment_ * alignment_);
    return offset;
  }
  /// The same, with zeros behind the data up to a multiple of 4 bytes.
  uint32_t push_padded(const void* data, uint32_t bytes) {
    const uint32_t offset = push(data, bytes);
    std::memset(host_.data() + offset + bytes, 0, (4 - bytes % 4) % 4);
    return offset;
  }
  /// Writes what was pushed to buffer(), and starts over.
  void write();
  WGPUBuffer buffer() const { return buffer_; }

private:
  Device& device_;
  WGPUBuffer buffer_ = nullptr;
  std::vector<uint8_t> host_;
  uint32_t alignment_;
  uint32_t used_ = 0;
};

} // namespace torch_webgpu
