// Timestamp profiler: device time per dispatch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/stream.h"

namespace torch_webgpu {

struct ProfileEntry {
  std::string label; // the pipeline's
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
};

/// While enabled, each dispatch runs in a compute pass of its own with timestamps at both ends.
/// That is slower than normal running: passes cannot share state and the device drains between
/// them.
class Profiler final : public DispatchListener {
public:
  explicit Profiler(Stream& stream) : stream_(stream) {}

  /// Raises kRuntime where the device has no timestamp queries.
  void start();
  /// Waits for the device and returns what ran since start(), in order.
  std::vector<ProfileEntry> stop();

  void begin(const Pipeline& pipeline) override;
  void end() override;

private:
  struct Open {
    std::string label;
    std::shared_ptr<Timestamp> start;
    std::shared_ptr<Timestamp> end;
  };
  Stream& stream_;
  std::vector<Open> open_;
};

} // namespace torch_webgpu
