// Device times at points of the stream.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "runtime/commands/encoder.h"
#include "runtime/commands/readbacks.h"

namespace torch_webgpu {

/// A point in the stream, as record_timestamp() took it.
class Timestamp {
public:
  virtual ~Timestamp() = default;
  /// Device time in nanoseconds; waits for the device if it has not come that far.
  virtual uint64_t nanoseconds() = 0;
};

/// Query sets are scarce, so many timestamps share one and are resolved together.
class Timestamps {
public:
  /// Timestamps take the lock themselves when they are read.
  Timestamps(Device& device, std::recursive_mutex& mutex, Encoder& encoder, Readbacks& readbacks)
      : device_(device), mutex_(mutex), encoder_(encoder), readbacks_(readbacks) {}

  /// Appends a timestamp. The device must have timestamp queries.
  std::shared_ptr<Timestamp> record();

private:
  class Block;
  class Entry;

  Device& device_;
  std::recursive_mutex& mutex_;
  Encoder& encoder_;
  Readbacks& readbacks_;
  std::shared_ptr<Block> block_; // the one that is being filled
};

} // namespace torch_webgpu
