// What DistributedDataParallel times its steps with, on the device: for its logging data.
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "backend/tensor.h"
#include "runtime/context.h"

namespace torch_webgpu {
namespace {

class ReducerTimer final : public c10d::Timer {
public:
  explicit ReducerTimer(c10::Device device)
      : index_(static_cast<uint32_t>(std::max<int>(device.index(), 0))) {}

  void record(Event event) override {
    Timer::record(event); // the host's time
    timestamps_[static_cast<size_t>(event)] = context(index_).stream.record_timestamp();
  }

  // Waits for the later event. Nothing where the device has no timestamps.
  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const auto& from = timestamps_[static_cast<size_t>(start)];
    const auto& to = timestamps_[static_cast<size_t>(end)];
    if (from == nullptr || to == nullptr) {
      return std::nullopt;
    }
    const auto nanoseconds = static_cast<int64_t>(to->nanoseconds() - from->nanoseconds());
    return nanoseconds < 0 ? std::nullopt : std::optional(nanoseconds);
  }

private:
  const uint32_t index_;
  std::array<std::shared_ptr<Timestamp>, 5> timestamps_; // by event
};

} // namespace
} // namespace torch_webgpu

namespace c10d {

C10_REGISTER_TYPED_CLASS(TimerRegistry, torch_webgpu::kWebGPU, torch_webgpu::ReducerTimer)

} // namespace c10d
