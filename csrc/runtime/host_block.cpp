#include "runtime/host_block.h"

#include <mutex>
#include <new>

#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/platform.h"

namespace torch_webgpu {
namespace {

// A driver may refuse a buffer when there are many or large ones, which loses the device.
constexpr uint32_t kMostBuffers = 512;

uint64_t most_bytes() {
  static const uint64_t most = platform::main_memory().total / 4;
  return most;
}

struct Held {
  std::atomic<uint32_t> buffers{0};
  std::atomic<uint64_t> bytes{0};
};
std::array<Held, kMostDevices> held_of;

// 0: not known, 1: yes, 2: no.
std::array<std::atomic<uint8_t>, kMostDevices> works_of;

std::shared_ptr<void> new_memory(uint64_t bytes) {
  constexpr std::align_val_t kAlign{HostBlock::kAlignment};
  return {::operator new(bytes, kAlign), [](void* data) { ::operator delete(data, kAlign); }};
}

WGPUBuffer make_buffer(const Device& device, const std::shared_ptr<void>& memory, uint64_t bytes,
                       HostCopy way) {
  // MapRead, although it is never mapped: Dawn then makes what a submission has written visible to
  // the host.
  return device.create_buffer_over(memory, bytes,
                                   way == HostCopy::from_host
                                       ? WGPUBufferUsage_CopySrc
                                       : WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst);
}

bool works_on(const Context& context) {
  if (!context.device.caps().host_memory) {
    return false;
  }
  // The device that may be lost is of the first adapter. Others are trusted if they are its equals.
  Context& trial = isolated_context();
  if (context.device.info().name != trial.device.info().name) {
    return false;
  }
  std::lock_guard<std::recursive_mutex> lock(trial.mutex);
  constexpr uint64_t kBytes = 2u << 20;
  const std::shared_ptr<void> memory = new_memory(kBytes);
  bool works = true;
  for (HostCopy way : {HostCopy::from_host, HostCopy::to_host}) {
    WGPUBuffer buffer = make_buffer(trial.device, memory, kBytes, way);
    works = works && buffer != nullptr;
    if (buffer != nullptr) {
      trial.device.api().BufferRelease(buffer);
    }
  }
  return works && !trial.device.lost();
}

} // namespace

HostBlock::HostBlock(uint64_t bytes)
    : memory_(new_memory(bytes)), bytes_(bytes), uses_(std::make_shared<std::atomic<uint32_t>>(0)) {
}

HostBlock::~HostBlock() {
  if (in_bad_fork()) { // the buffers are the parent's
    return;
  }
  for (const OfDevice& of : devices_) {
    if (of.context != nullptr) {
      std::lock_guard<std::recursive_mutex> lock(of.context->mutex);
      for (WGPUBuffer buffer : of.buffers) {
        if (buffer != nullptr) {
          of.context->device.api().BufferRelease(buffer);
          --held_of.at(of.context->index).buffers;
          held_of.at(of.context->index).bytes -= bytes_;
        }
      }
    }
  }
}

bool HostBlock::is_in_use() const {
  if (in_bad_fork() || uses_->load() == 0) { // in a child, devices use the parent's memory
    return false;
  }
  for (const OfDevice& of : devices_) {
    if (of.context != nullptr) {
      const std::unique_lock<std::recursive_mutex> lock(of.context->mutex, std::try_to_lock);
      if (lock.owns_lock()) {
        of.context->device.process_events(); // may tell that it has finished
      }
    }
  }
  return uses_->load() != 0;
}

bool HostBlock::is_buffer_of(const Context& context) const {
  const OfDevice& of = devices_.at(context.index);
  return of.context == &context && (of.buffers[0] != nullptr || of.buffers[1] != nullptr);
}

bool HostBlock::may_be_buffer(const Context& context) {
  // isolated_context() has the index 0 as well, and is replaced when it is lost.
  if (context_if_initialized(context.index) != &context) {
    return false;
  }
  std::atomic<uint8_t>& works = works_of.at(context.index);
  if (works.load() == 0) {
    works.store(works_on(context) ? 1 : 2);
  }
  return works.load() == 1;
}

WGPUBuffer HostBlock::buffer(Context& context, HostCopy way) {
  OfDevice& of = devices_.at(context.index);
  of.context = &context;
  const auto i = static_cast<size_t>(way);
  if (of.asked[i] < kAsked && ++of.asked[i] == kAsked) {
    Held& held = held_of.at(context.index);
    if (held.buffers < kMostBuffers && held.bytes + bytes_ <= most_bytes()) {
      of.buffers[i] = make_buffer(context.device, memory_, bytes_, way);
      if (of.buffers[i] != nullptr) {
        ++held.buffers;
        held.bytes += bytes_;
      }
    }
  }
  return of.buffers[i];
}

HostBlock::Use::Use(HostBlock& block, Context& context) : block_(block), context_(context) {
  ++*block_.uses_;
}

HostBlock::Use::~Use() {
  try {
    context_.stream.flush();
  } catch (const std::exception&) {
    return; // the block stays in use
  }
  using Uses = std::shared_ptr<std::atomic<uint32_t>>;
  WGPUQueueWorkDoneCallbackInfo callback = WGPU_QUEUE_WORK_DONE_CALLBACK_INFO_INIT;
  callback.mode = WGPUCallbackMode_AllowProcessEvents;
  callback.userdata1 = new Uses(block_.uses_);
  callback.callback = [](WGPUQueueWorkDoneStatus, WGPUStringView, void* userdata, void*) {
    const std::unique_ptr<Uses> uses(static_cast<Uses*>(userdata));
    --**uses;
  };
  context_.device.api().QueueOnSubmittedWorkDone(context_.device.queue(), callback);
}

} // namespace torch_webgpu
