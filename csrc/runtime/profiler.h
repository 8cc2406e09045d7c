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
  uint64_t tag = 0; // what the tag function said when the dispatch was appended
};

/// While enabled, each dispatch runs in a compute pass of its own with timestamps at both ends.
/// That is slower than normal running: passes cannot share state and the device drains between
/// them.
class Profiler final : public DispatchListener {
public:
  using Tag = uint64_t (*)();

  explicit Profiler(Stream& stream);
  ~Profiler() override;

  /// Raises kRuntime where the device has no timestamp queries, and if it is running already.
  /// `tag`, if any, is asked for each dispatch on the thread that appends it.
  void start(Tag tag = nullptr);
  /// Waits for the device and returns what ran since start(), in order.
  std::vector<ProfileEntry> stop();
  bool running() const { return running_; }

  void begin(const Pipeline& pipeline) override;
  void end() override;

private:
  struct Dispatches;

  Stream& stream_;
  Tag tag_ = nullptr;
  bool running_ = false;
  std::unique_ptr<Dispatches> open_; // whose times have not been read
};

} // namespace torch_webgpu
