// Timestamp profiler: device time per dispatch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace torch_webgpu {

class Stream;
class Timestamp;

struct ProfileEntry {
  std::string label; // the pipeline's
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
};

/// While enabled, each dispatch runs in a compute pass of its own with timestamps at both ends.
/// That is slower than normal running: passes cannot share state and the device drains between
/// them.
class Profiler {
public:
  explicit Profiler(Stream& stream) : stream_(stream) {}

  /// Raises kRuntime where the device has no timestamp queries.
  void start();
  /// Waits for the device and returns what ran since start(), in order.
  std::vector<ProfileEntry> stop();

  /// Called by the stream around a dispatch.
  void begin(const std::string& label);
  void end();

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
