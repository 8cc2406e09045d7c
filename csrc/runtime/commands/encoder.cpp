#include "runtime/commands/encoder.h"

#include <algorithm>

namespace torch_webgpu {
namespace {

// A submit costs as much as four dispatches, so batches are long while the device is busy; when it
// idles, the first batch is short so that it starts early.
constexpr uint32_t kBusyBatch = 64;
constexpr uint32_t kIdleBatch = 16;
// A slow host fills a batch in milliseconds, and a device without work would wait for it. So an
// open batch asks at this interval whether the device is idle. A submit costs a tenth of it.
constexpr std::chrono::microseconds kIdleCheck(120);
// The clock is read once for so many commands.
constexpr uint32_t kCommandsPerLook = 4;

} // namespace

void Encoder::open() {
  if (encoder_ == nullptr) {
    encoder_ = device_.api().DeviceCreateCommandEncoder(device_.handle(), nullptr);
    flush_threshold_ = submissions_.all_finished() ? kIdleBatch : kBusyBatch;
    next_look_ = kCommandsPerLook;
    next_idle_check_ = Clock::now() + kIdleCheck;
  }
}

void Encoder::flush_if_due() {
  if (open_commands_ >= flush_threshold_) {
    flush();
    return;
  }
  next_look_ = std::min(open_commands_ + kCommandsPerLook, flush_threshold_);
  const Clock::time_point now = Clock::now();
  if (now >= next_idle_check_) {
    next_idle_check_ = now + kIdleCheck;
    if (submissions_.is_complete(submissions_.last())) {
      flush();
    }
  }
}

void Encoder::end_pass() {
  if (pass_ != nullptr) {
    device_.api().ComputePassEncoderEnd(pass_);
    device_.api().ComputePassEncoderRelease(pass_);
    pass_ = nullptr;
  }
}

uint64_t Encoder::flush() {
  if (encoder_ == nullptr) {
    return submissions_.last();
  }
  end_pass();
  const Api& api = device_.api();
  ring_.write();
  staging_.before_submit();
  WGPUCommandBuffer commands = api.CommandEncoderFinish(encoder_, nullptr);
  api.CommandEncoderRelease(encoder_);
  encoder_ = nullptr;
  open_commands_ = 0;
  api.QueueSubmit(device_.queue(), 1, &commands);
  api.CommandBufferRelease(commands);
  staging_.after_submit();
  return submissions_.add();
}

} // namespace torch_webgpu
