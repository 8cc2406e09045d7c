#include "runtime/profiler.h"

#include "runtime/device.h"
#include "runtime/error.h"

namespace torch_webgpu {

void Profiler::start() {
  if (!stream_.device().caps().timestamps) {
    raise(ErrorKind::kRuntime,
          "the profiler needs timestamp queries, which this WebGPU device does not have");
  }
  open_.clear();
  stream_.set_listener(this);
}

std::vector<ProfileEntry> Profiler::stop() {
  stream_.set_listener(nullptr);
  std::vector<ProfileEntry> entries;
  entries.reserve(open_.size());
  for (const Open& open : open_) {
    entries.push_back({open.label, open.start->nanoseconds(), open.end->nanoseconds()});
  }
  open_.clear();
  return entries;
}

void Profiler::begin(const Pipeline& pipeline) {
  open_.push_back({pipeline.label, stream_.record_timestamp(), nullptr});
}

void Profiler::end() { open_.back().end = stream_.record_timestamp(); }

} // namespace torch_webgpu
