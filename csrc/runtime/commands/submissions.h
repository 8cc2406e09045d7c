// Submissions that the device has not finished.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "runtime/device.h"

namespace torch_webgpu {

/// Submissions have serials 1, 2, ... and finish in their order.
class Submissions {
public:
  explicit Submissions(Device& device) : device_(device) {}

  /// Counts the submit that was just made, and waits while the host is too far ahead.
  uint64_t add();
  uint64_t last() const { return last_; }
  bool all_finished() const { return in_flight_.empty(); }
  /// Whether the submission has finished on the device.
  bool is_complete(uint64_t serial);
  void wait(uint64_t serial);

private:
  void retire_finished();

  struct Submission {
    uint64_t serial = 0;
    std::unique_ptr<Completion> completion;
  };
  Device& device_;
  std::deque<Submission> in_flight_;
  uint64_t last_ = 0;
};

} // namespace torch_webgpu
