#include "runtime/commands/readbacks.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

namespace torch_webgpu {

// A staging buffer that is mapped once the device has copied to it.
class Readbacks::Mapped final : public Readback {
public:
  Mapped(Readbacks& owner, const Buffer& source, uint64_t offset, uint64_t bytes, bool checks)
      : owner_(owner), skip_(offset % 4), bytes_(bytes) {
    // Copies move whole words: take the words around the range and cut it out on the host.
    const uint64_t words = (skip_ + bytes + 3) / 4 * 4;
    check_range(source, offset - skip_, words, "read");
    size_ = words + sizeof(KernelErrors::Words);
    staging_ = owner_.take_staging(size_);
    owner_.encoder_.copy(source.handle, offset - skip_, staging_.second, 0, words);
    checks_ = checks && owner_.errors_.armed();
    if (checks_) { // the error words are copied with the data
      owner_.encoder_.copy(owner_.errors_.buffer(), 0, staging_.second, words,
                           sizeof(KernelErrors::Words));
      owner_.errors_.disarm();
    }
    owner_.encoder_.flush();
    WGPUBufferMapCallbackInfo callback = WGPU_BUFFER_MAP_CALLBACK_INFO_INIT;
    callback.mode = WGPUCallbackMode_AllowProcessEvents;
    callback.userdata1 = this;
    callback.callback = [](WGPUMapAsyncStatus status, WGPUStringView message, void* userdata,
                           void*) {
      auto* self = static_cast<Mapped*>(userdata);
      self->mapped_ = status == WGPUMapAsyncStatus_Success;
      self->message_ = to_string(message);
      self->completion_.done.store(true, std::memory_order_release);
    };
    completion_.future =
        api().BufferMapAsync(staging_.second, WGPUMapMode_Read, 0, size_, callback).id;
  }

  ~Mapped() override {
    std::lock_guard<std::recursive_mutex> lock(owner_.mutex_);
    if (!completion_.done) { // the callback, which writes to this object, must have run
      try {
        owner_.device_.wait(completion_);
      } catch (const std::exception&) {
        return; // the device is lost, and its buffers are too
      }
    }
    give_back();
  }

  bool ready() override {
    std::lock_guard<std::recursive_mutex> lock(owner_.mutex_);
    owner_.device_.process_events();
    return completion_.done.load(std::memory_order_acquire);
  }

  void wait(void* data) override {
    std::lock_guard<std::recursive_mutex> lock(owner_.mutex_);
    owner_.device_.wait(completion_);
    owner_.device_.throw_pending_error();
    if (!mapped_) {
      raise(ErrorKind::kRuntime, "reading from the WebGPU device failed: " + message_);
    }
    const auto* bytes =
        static_cast<const uint8_t*>(api().BufferGetConstMappedRange(staging_.second, 0, size_));
    KernelErrors::Words errors = {};
    if (checks_) {
      std::memcpy(errors.data(), bytes + size_ - sizeof(errors), sizeof(errors));
    }
    // Also beside an error, which may be another operator's: a collective goes on with the values.
    std::memcpy(data, bytes + skip_, bytes_);
    give_back();
    owner_.errors_.raise_any(errors, owner_.encoder_);
  }

private:
  const Api& api() const { return owner_.device_.api(); }

  void give_back() {
    if (staging_.second != nullptr) {
      if (mapped_) {
        api().BufferUnmap(staging_.second);
      }
      owner_.pool_.insert(staging_);
      staging_.second = nullptr;
    }
  }

  Readbacks& owner_;
  uint64_t skip_;
  uint64_t bytes_;
  uint64_t size_ = 0;
  Staging staging_;
  bool checks_ = false;
  bool mapped_ = false;
  std::string message_;
  Completion completion_;
};

Readbacks::Staging Readbacks::take_staging(uint64_t size) {
  constexpr uint64_t kSmallest = 4096;
  constexpr size_t kMostCached = 16;
  auto it = pool_.lower_bound(size);
  if (it != pool_.end() && it->first <= std::max(kSmallest, 4 * size)) {
    const Staging found = *it;
    pool_.erase(it);
    return found;
  }
  if (pool_.size() >= kMostCached) { // drop the smallest: it is the cheapest to make again
    device_.api().BufferRelease(pool_.begin()->second);
    pool_.erase(pool_.begin());
  }
  const uint64_t rounded = std::max(kSmallest, std::bit_ceil(size));
  return {rounded, device_.create_buffer(rounded, WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst,
                                         "readback")};
}

std::unique_ptr<Readback> Readbacks::start(const Buffer& source, uint64_t offset, uint64_t bytes,
                                           bool checks) {
  return std::make_unique<Mapped>(*this, source, offset, bytes, checks);
}

void Readbacks::read(const Buffer& source, uint64_t offset, void* data, uint64_t bytes,
                     bool checks) {
  // Two chunks in flight: one is mapped and copied out while the device fills the other.
  constexpr uint64_t kChunk = 32ull << 20;
  std::unique_ptr<Readback> next;
  uint64_t next_at = 0;
  for (uint64_t at = 0; at < bytes; at += kChunk) {
    std::unique_ptr<Readback> started =
        start(source, offset + at, std::min(kChunk, bytes - at), checks);
    if (next != nullptr) {
      next->wait(static_cast<uint8_t*>(data) + next_at);
    }
    next = std::move(started);
    next_at = at;
  }
  if (next != nullptr) {
    next->wait(static_cast<uint8_t*>(data) + next_at);
  }
}

void Readbacks::check_errors() {
  if (errors_.armed()) {
    Buffer words;
    words.handle = errors_.buffer();
    words.size = sizeof(KernelErrors::Words);
    uint32_t code = 0;
    read(words, 0, &code, sizeof(code));
  }
}

} // namespace torch_webgpu
