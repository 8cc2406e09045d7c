#include "runtime/profiler.h"

#include <deque>
#include <utility>

#include "runtime/device.h"
#include "runtime/error.h"

namespace torch_webgpu {

struct Profiler::Dispatches {
  struct Dispatch {
    std::string label;
    std::shared_ptr<Timestamp> start;
    std::shared_ptr<Timestamp> end;
    uint64_t tag = 0;
  };
  std::deque<Dispatch> list;
};

Profiler::Profiler(Stream& stream) : stream_(stream), open_(std::make_unique<Dispatches>()) {}

Profiler::~Profiler() = default;

void Profiler::start(Tag tag) {
  if (!stream_.device().caps().timestamps) {
    raise(ErrorKind::kRuntime,
          "the profiler needs timestamp queries, which this WebGPU device does not have");
  }
  if (running_) {
    raise(ErrorKind::kRuntime,
          "a profiler records this device already: torch.webgpu.profile() and torch.profiler "
          "cannot run at the same time, nor either of them twice");
  }
  running_ = true;
  tag_ = tag;
  open_->list.clear();
  stream_.set_listener(this);
}

std::vector<ProfileEntry> Profiler::stop() {
  stream_.set_listener(nullptr);
  running_ = false;
  const auto dispatches = std::exchange(open_->list, {});
  std::vector<ProfileEntry> entries;
  entries.reserve(dispatches.size());
  for (const auto& each : dispatches) {
    if (each.end != nullptr) { // it is null if the dispatch raised
      entries.push_back({each.label, each.start->nanoseconds(), each.end->nanoseconds(), each.tag});
    }
  }
  return entries;
}

void Profiler::begin(const Pipeline& pipeline) {
  open_->list.push_back({pipeline.label, stream_.record_timestamp(), nullptr,
                         tag_ != nullptr ? tag_() : uint64_t{0}});
}

void Profiler::end() { open_->list.back().end = stream_.record_timestamp(); }

} // namespace torch_webgpu
