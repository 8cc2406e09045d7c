#include "runtime/commands/submissions.h"

#include "runtime/api.h"

namespace torch_webgpu {
namespace {

// How many submissions may be unfinished. Bounds the memory that their commands keep alive.
constexpr size_t kMaxInFlight = 16;

} // namespace

uint64_t Submissions::add() {
  Submission submission{++last_, std::make_unique<Completion>()};
  WGPUQueueWorkDoneCallbackInfo callback = WGPU_QUEUE_WORK_DONE_CALLBACK_INFO_INIT;
  callback.mode = WGPUCallbackMode_AllowProcessEvents;
  callback.userdata1 = submission.completion.get();
  callback.callback = [](WGPUQueueWorkDoneStatus, WGPUStringView, void* userdata, void*) {
    static_cast<Completion*>(userdata)->done.store(true, std::memory_order_release);
  };
  submission.completion->future =
      device_.api().QueueOnSubmittedWorkDone(device_.queue(), callback).id;
  in_flight_.push_back(std::move(submission));
  retire_finished();
  while (in_flight_.size() > kMaxInFlight) {
    device_.wait(*in_flight_.front().completion);
    in_flight_.pop_front();
  }
  return last_;
}

void Submissions::retire_finished() {
  device_.process_events();
  while (!in_flight_.empty() && in_flight_.front().completion->done.load()) {
    in_flight_.pop_front();
  }
}

bool Submissions::is_complete(uint64_t serial) {
  retire_finished();
  return serial <= last_ && (in_flight_.empty() || in_flight_.front().serial > serial);
}

void Submissions::wait(uint64_t serial) {
  while (!in_flight_.empty() && in_flight_.front().serial <= serial) {
    device_.wait(*in_flight_.front().completion);
    in_flight_.pop_front();
  }
}

} // namespace torch_webgpu
