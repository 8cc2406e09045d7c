// Timestamps of the stream: query sets are scarce, so many timestamps share one and are resolved
// together.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/stream.h"

namespace torch_webgpu {

class TimestampBlock {
public:
  explicit TimestampBlock(Stream& stream);
  ~TimestampBlock();
  bool full() const { return used_ == kCapacity; }

  /// Writes the next timestamp through an empty compute pass in `encoder`.
  static std::shared_ptr<Timestamp> record(const std::shared_ptr<TimestampBlock>& block,
                                           WGPUCommandEncoder encoder);
  /// Device time of entry `index` in nanoseconds; resolves all entries written so far if needed.
  uint64_t nanoseconds(uint32_t index);

private:
  static constexpr uint32_t kCapacity = 2048;
  void resolve();

  Stream& stream_;
  WGPUQuerySet queries_ = nullptr;
  WGPUBuffer resolved_ = nullptr;
  uint32_t used_ = 0;
  std::vector<uint64_t> values_;
};

} // namespace torch_webgpu
