#include "runtime/stream.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "runtime/api.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/profiler.h"
#include "runtime/stream_internal.h"

namespace torch_webgpu {
namespace {

// A submit costs as much as four dispatches, so batches are long while the device is busy; when it
// idles, the first batch is short so that it starts early.
constexpr uint32_t kBusyBatch = 64;
constexpr uint32_t kIdleBatch = 16;
// Submissions the host may run ahead. Bounds the memory that unfinished commands hold.
constexpr size_t kMaxInFlight = 16;
constexpr uint32_t kRingBytes = 1u << 20;
// Uploads up to this size ride in the ring, larger ones go through the staging chunks.
constexpr uint64_t kSmallUpload = 64u << 10;
constexpr size_t kBindGroupSlots = 4096;

uint64_t hash_bindings(const PipelineLayout* layout, const Binding* bindings, uint32_t count) {
  uint64_t h = reinterpret_cast<uintptr_t>(layout);
  for (uint32_t i = 0; i < count; ++i) {
    h = (h ^ reinterpret_cast<uintptr_t>(bindings[i].buffer)) * 0x9e3779b97f4a7c15ull;
    h ^= (h >> 29) + bindings[i].offset + (bindings[i].size << 1);
  }
  return h * 0xbf58476d1ce4e5b9ull;
}

// Checked here and not left to WebGPU's validation, which reports later and, in wgpu-native, by
// aborting.
void check_range(const Buffer& buffer, uint64_t offset, uint64_t bytes, const char* what) {
  if (offset % 4 != 0 || bytes % 4 != 0 || offset > buffer.size || bytes > buffer.size - offset) {
    raise(ErrorKind::kRuntime, std::string("invalid ") + what + " of " + std::to_string(bytes) +
                                   " bytes at offset " + std::to_string(offset) +
                                   " of a buffer of " + std::to_string(buffer.size) + " bytes");
  }
}

} // namespace

// Direct mapped: a collision replaces, so the cache is bounded without bookkeeping on the hot path.
struct Stream::BindGroupSlot {
  WGPUBindGroup group = nullptr;
  const PipelineLayout* layout = nullptr;
  uint32_t count = 0;
  std::array<Binding, kMaxBindings> bindings;
};

struct Stream::Submission {
  uint64_t serial = 0;
  std::unique_ptr<Completion> completion;
};

Stream::Stream(Device& device, std::recursive_mutex& mutex)
    : device_(device), mutex_(mutex), staging_(device), ring_host_(kRingBytes),
      bind_groups_(kBindGroupSlots) {
  // One window behind the ring's end: a binding at the last offset reaches that far.
  ring_ = create_buffer(kRingBytes + kParamsWindow,
                        WGPUBufferUsage_Uniform | WGPUBufferUsage_CopySrc | WGPUBufferUsage_CopyDst,
                        "ring");
  errors_ = create_buffer(
      sizeof(ErrorWords),
      WGPUBufferUsage_Storage | WGPUBufferUsage_CopySrc | WGPUBufferUsage_CopyDst, "errors");
  const ErrorWords zeros = {};
  device_.api().QueueWriteBuffer(device_.queue(), errors_, 0, zeros.data(), sizeof(zeros));
}

// Lives as long as the process, see Device::~Device.
Stream::~Stream() = default;

WGPUBuffer Stream::create_buffer(uint64_t size, uint64_t usage, const char* label) {
  WGPUBufferDescriptor descriptor = WGPU_BUFFER_DESCRIPTOR_INIT;
  descriptor.label = to_view(label);
  descriptor.usage = usage;
  descriptor.size = size;
  WGPUBuffer buffer = nullptr;
  const Device::ScopedError error = device_.with_error_scopes(
      [&] { buffer = device_.api().DeviceCreateBuffer(device_.handle(), &descriptor); });
  if (!error.message.empty() || buffer == nullptr) {
    raise(error.out_of_memory ? ErrorKind::kOutOfMemory : ErrorKind::kRuntime,
          std::string("could not create the ") + label + " buffer of " + std::to_string(size) +
              " bytes: " + error.message);
  }
  return buffer;
}

// ---- Encoding
// -------------------------------------------------------------------------------------

void Stream::open_encoder() {
  if (encoder_ == nullptr) {
    encoder_ = device_.api().DeviceCreateCommandEncoder(device_.handle(), nullptr);
    flush_threshold_ = in_flight_.empty() ? kIdleBatch : kBusyBatch;
  }
}

void Stream::open_pass() {
  if (pass_ == nullptr) {
    open_encoder();
    pass_ = device_.api().CommandEncoderBeginComputePass(encoder_, nullptr);
    bound_pipeline_ = nullptr;
  }
}

void Stream::end_pass() {
  if (pass_ != nullptr) {
    device_.api().ComputePassEncoderEnd(pass_);
    device_.api().ComputePassEncoderRelease(pass_);
    pass_ = nullptr;
  }
}

void Stream::count_command() {
  if (++open_commands_ >= flush_threshold_) {
    flush();
  }
}

uint32_t Stream::push_to_ring(const void* data, uint32_t bytes) {
  const uint32_t align = std::max(device_.caps().uniform_offset_alignment, 16u);
  if (ring_used_ + bytes > kRingBytes) {
    flush();
  }
  const uint32_t offset = ring_used_;
  std::memcpy(ring_host_.data() + offset, data, bytes);
  ring_used_ = std::min(kRingBytes, (offset + bytes + align - 1) / align * align);
  return offset;
}

WGPUBindGroup Stream::bind_group(const PipelineLayout& layout, const Binding* bindings,
                                 uint32_t count) {
  BindGroupSlot& slot = bind_groups_[hash_bindings(&layout, bindings, count) >> 52];
  static_assert(kBindGroupSlots == 1u << 12, "the shift above keeps 12 bits");
  if (slot.layout == &layout && slot.count == count &&
      std::equal(bindings, bindings + count, slot.bindings.begin())) {
    return slot.group;
  }
  std::array<WGPUBindGroupEntry, kMaxBindings + 2> entries;
  uint32_t n = 0;
  auto add = [&](uint32_t number, WGPUBuffer buffer, uint64_t offset, uint64_t size) {
    WGPUBindGroupEntry entry = WGPU_BIND_GROUP_ENTRY_INIT;
    entry.binding = number;
    entry.buffer = buffer;
    entry.offset = offset;
    entry.size = size;
    entries[n++] = entry;
  };
  for (uint32_t i = 0; i < count; ++i) {
    const Binding& binding = bindings[i];
    add(i, binding.buffer->handle, binding.offset,
        binding.size != 0 ? binding.size : binding.buffer->size - binding.offset);
  }
  if (layout.binding.checks_indices) {
    add(kErrorsBinding, errors_, 0, sizeof(ErrorWords));
  }
  add(kParamsBinding, ring_, 0, kParamsWindow);
  WGPUBindGroupDescriptor descriptor = WGPU_BIND_GROUP_DESCRIPTOR_INIT;
  descriptor.layout = layout.group;
  descriptor.entryCount = n;
  descriptor.entries = entries.data();
  if (slot.group != nullptr) {
    device_.api().BindGroupRelease(slot.group);
  }
  slot.group = device_.api().DeviceCreateBindGroup(device_.handle(), &descriptor);
  slot.layout = &layout;
  slot.count = count;
  std::copy(bindings, bindings + count, slot.bindings.begin());
  ++stats_.bind_groups;
  return slot.group;
}

void Stream::forget(const Buffer* buffer) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  for (BindGroupSlot& slot : bind_groups_) {
    const auto begin = slot.bindings.begin();
    if (slot.group != nullptr &&
        std::any_of(begin, begin + slot.count,
                    [&](const Binding& binding) { return binding.buffer == buffer; })) {
      device_.api().BindGroupRelease(slot.group);
      slot.group = nullptr;
      slot.layout = nullptr;
      slot.count = 0;
    }
  }
}

void Stream::dispatch(const Pipeline& pipeline, const Binding* bindings, uint32_t num_bindings,
                      const void* params, uint32_t params_bytes, Grid grid) {
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) {
    return;
  }
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  device_.throw_pending_error();
  if (num_bindings != pipeline.layout->binding.num_buffers || params_bytes > kParamsWindow) {
    raise(ErrorKind::kRuntime,
          pipeline.label + ": the dispatch does not fit its pipeline's layout");
  }
  const uint64_t limit = device_.caps().max_storage_binding_size;
  for (uint32_t i = 0; i < num_bindings; ++i) {
    const Binding& binding = bindings[i];
    if ((binding.size != 0 ? binding.size : binding.buffer->size - binding.offset) > limit) {
      raise(ErrorKind::kNotImplemented,
            pipeline.label + "(): a tensor of " + std::to_string(binding.buffer->size) +
                " bytes is larger than a storage binding of this adapter (" +
                std::to_string(limit) + " bytes), and this kernel does not split");
    }
  }
  if (profiler_ != nullptr) {
    profiler_->begin(pipeline.label);
  }
  const uint32_t offset = push_to_ring(params, params_bytes); // may flush, so before the pass opens
  open_pass();
  const Api& api = device_.api();
  if (bound_pipeline_ != &pipeline) {
    api.ComputePassEncoderSetPipeline(pass_, pipeline.handle);
    bound_pipeline_ = &pipeline;
  }
  api.ComputePassEncoderSetBindGroup(pass_, 0, bind_group(*pipeline.layout, bindings, num_bindings),
                                     1, &offset);
  api.ComputePassEncoderDispatchWorkgroups(pass_, grid[0], grid[1], grid[2]);
  errors_armed_ |= pipeline.layout->binding.checks_indices;
  ++stats_.dispatches;
  if (profiler_ != nullptr) {
    profiler_->end();
  }
  count_command();
}

void Stream::copy(const Buffer& source, uint64_t source_offset, const Buffer& target,
                  uint64_t target_offset, uint64_t bytes) {
  if (bytes == 0) {
    return;
  }
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  device_.throw_pending_error();
  check_range(source, source_offset, bytes, "copy");
  check_range(target, target_offset, bytes, "copy");
  if (source.handle == target.handle) {
    raise(ErrorKind::kRuntime, "WebGPU copies between two different buffers only");
  }
  end_pass();
  open_encoder();
  device_.api().CommandEncoderCopyBufferToBuffer(encoder_, source.handle, source_offset,
                                                 target.handle, target_offset, bytes);
  ++stats_.copies;
  count_command();
}

void Stream::clear(const Buffer& target, uint64_t offset, uint64_t bytes) {
  if (bytes == 0) {
    return;
  }
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  device_.throw_pending_error();
  check_range(target, offset, bytes, "clear");
  end_pass();
  open_encoder();
  device_.api().CommandEncoderClearBuffer(encoder_, target.handle, offset, bytes);
  ++stats_.copies;
  count_command();
}

// ---- Uploads
// --------------------------------------------------------------------------------------

void Stream::write_queue(WGPUBuffer target, uint64_t offset, const void* data, uint64_t bytes) {
  const auto* from = static_cast<const uint8_t*>(data);
  const uint64_t whole = bytes / 4 * 4;
  if (whole != 0) {
    device_.api().QueueWriteBuffer(device_.queue(), target, offset, from, whole);
  }
  if (whole != bytes) {
    uint32_t tail = 0;
    std::memcpy(&tail, from + whole, bytes - whole);
    device_.api().QueueWriteBuffer(device_.queue(), target, offset + whole, &tail, sizeof(tail));
  }
}

void Stream::upload(const Buffer& target, uint64_t offset, const void* data, uint64_t bytes) {
  if (bytes == 0) {
    return;
  }
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  device_.throw_pending_error();
  check_range(target, offset, (bytes + 3) / 4 * 4, "upload");
  ++stats_.uploads;
  if (encoder_ != nullptr && bytes <= kSmallUpload) {
    uint32_t at = push_to_ring(data, static_cast<uint32_t>(bytes));
    const uint64_t padded = (bytes + 3) / 4 * 4;
    std::memset(ring_host_.data() + at + bytes, 0, padded - bytes);
    ring_used_ = std::max(ring_used_, static_cast<uint32_t>(at + padded));
    end_pass();
    open_encoder();
    device_.api().CommandEncoderCopyBufferToBuffer(encoder_, ring_, at, target.handle, offset,
                                                   padded);
    count_command();
    return;
  }
  if (bytes <= kSmallUpload) { // with nothing open, a queue write is in order by itself
    write_queue(target.handle, offset, data, bytes);
    return;
  }
  const auto* from = static_cast<const uint8_t*>(data);
  const uint64_t padded = (bytes + 3) / 4 * 4;
  for (uint64_t done = 0; done < padded;) {
    const UploadStaging::Region region = staging_.take(padded - done);
    if (region.buffer == nullptr) {
      flush(); // what is staged already can go
      staging_.wait_for_a_chunk();
      continue;
    }
    const uint64_t given = std::min(region.bytes, bytes - done);
    std::memcpy(region.data, from + done, given);
    std::memset(region.data + given, 0, region.bytes - given);
    end_pass();
    open_encoder();
    device_.api().CommandEncoderCopyBufferToBuffer(encoder_, region.buffer, region.offset,
                                                   target.handle, offset + done, region.bytes);
    done += region.bytes;
    if (staging_.chunk_is_full()) {
      flush(); // the device copies this chunk while the host fills the next
    } else {
      count_command();
    }
  }
}

// ---- Submission
// -----------------------------------------------------------------------------------

uint64_t Stream::flush() {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (encoder_ == nullptr) {
    return submitted_;
  }
  end_pass();
  const Api& api = device_.api();
  if (ring_used_ != 0) {
    api.QueueWriteBuffer(device_.queue(), ring_, 0, ring_host_.data(), (ring_used_ + 3) / 4 * 4);
    ring_used_ = 0;
  }
  staging_.before_submit();
  WGPUCommandBuffer commands = api.CommandEncoderFinish(encoder_, nullptr);
  api.CommandEncoderRelease(encoder_);
  encoder_ = nullptr;
  open_commands_ = 0;
  api.QueueSubmit(device_.queue(), 1, &commands);
  api.CommandBufferRelease(commands);
  staging_.after_submit();
  ++stats_.submits;

  Submission submission{++submitted_, std::make_unique<Completion>()};
  WGPUQueueWorkDoneCallbackInfo callback = WGPU_QUEUE_WORK_DONE_CALLBACK_INFO_INIT;
  callback.mode = WGPUCallbackMode_AllowProcessEvents;
  callback.userdata1 = submission.completion.get();
  callback.callback = [](WGPUQueueWorkDoneStatus, WGPUStringView, void* userdata, void*) {
    static_cast<Completion*>(userdata)->done.store(true, std::memory_order_release);
  };
  submission.completion->future = api.QueueOnSubmittedWorkDone(device_.queue(), callback).id;
  in_flight_.push_back(std::move(submission));
  retire_finished();
  throttle(kMaxInFlight);
  return submitted_;
}

void Stream::retire_finished() {
  device_.process_events();
  while (!in_flight_.empty() && in_flight_.front().completion->done.load()) {
    in_flight_.pop_front();
  }
}

void Stream::throttle(size_t max_in_flight) {
  while (in_flight_.size() > max_in_flight) {
    device_.wait(*in_flight_.front().completion);
    in_flight_.pop_front();
  }
}

bool Stream::is_complete(uint64_t serial) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  retire_finished();
  return serial <= submitted_ && (in_flight_.empty() || in_flight_.front().serial > serial);
}

void Stream::wait(uint64_t serial) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  while (!in_flight_.empty() && in_flight_.front().serial <= serial) {
    device_.wait(*in_flight_.front().completion);
    in_flight_.pop_front();
  }
}

void Stream::drain() {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  // Dawn frees a released buffer when it learns that a submission made after the release has
  // finished, so there must be one, if only an empty one. It hands the memory back to the driver
  // one such step later.
  for (int step = 0; step < 2; ++step) {
    open_encoder();
    wait(flush());
    device_.process_events();
  }
}

void Stream::synchronize() {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  wait(flush());
  device_.process_events();
  device_.throw_pending_error();
  if (errors_armed_) {
    Buffer word;
    word.handle = errors_;
    word.size = sizeof(ErrorWords);
    uint32_t code = 0;
    read_chunk(word, 0, &code, sizeof(code));
  }
}

// ---- Readback
// -------------------------------------------------------------------------------------

class Stream::ReadbackImpl final : public Stream::Readback {
public:
  ReadbackImpl(Stream& stream, const Buffer& source, uint64_t offset, uint64_t bytes)
      : stream_(stream), skip_(offset % 4), bytes_(bytes) {
    // Copies move whole words: take the words around the range and cut it out on the host.
    const uint64_t words = (skip_ + bytes + 3) / 4 * 4;
    check_range(source, offset - skip_, words, "read");
    size_ = words + sizeof(ErrorWords);
    staging_ = stream_.take_readback_buffer(size_);
    stream_.end_pass();
    stream_.open_encoder();
    const Api& api = stream_.device_.api();
    api.CommandEncoderCopyBufferToBuffer(stream_.encoder_, source.handle, offset - skip_,
                                         staging_.second, 0, words);
    checks_ = stream_.errors_armed_;
    if (checks_) { // the error words ride along
      api.CommandEncoderCopyBufferToBuffer(stream_.encoder_, stream_.errors_, 0, staging_.second,
                                           words, sizeof(ErrorWords));
      stream_.errors_armed_ = false;
    }
    stream_.flush();
    WGPUBufferMapCallbackInfo callback = WGPU_BUFFER_MAP_CALLBACK_INFO_INIT;
    callback.mode = WGPUCallbackMode_AllowProcessEvents;
    callback.userdata1 = this;
    callback.callback = [](WGPUMapAsyncStatus status, WGPUStringView message, void* userdata,
                           void*) {
      auto* self = static_cast<ReadbackImpl*>(userdata);
      self->mapped_ = status == WGPUMapAsyncStatus_Success;
      self->message_ = to_string(message);
      self->completion_.done.store(true, std::memory_order_release);
    };
    completion_.future =
        api.BufferMapAsync(staging_.second, WGPUMapMode_Read, 0, size_, callback).id;
  }

  ~ReadbackImpl() override {
    std::lock_guard<std::recursive_mutex> lock(stream_.mutex_);
    if (!completion_.done) { // the callback points here: it must have run before this goes
      try {
        stream_.device_.wait(completion_);
      } catch (const std::exception&) {
        return; // the device is lost, its buffers with it
      }
    }
    give_back();
  }

  bool ready() override {
    std::lock_guard<std::recursive_mutex> lock(stream_.mutex_);
    stream_.device_.process_events();
    return completion_.done.load(std::memory_order_acquire);
  }

  void wait(void* data) override {
    std::lock_guard<std::recursive_mutex> lock(stream_.mutex_);
    const Api& api = stream_.device_.api();
    stream_.device_.wait(completion_);
    stream_.device_.throw_pending_error();
    if (!mapped_) {
      raise(ErrorKind::kRuntime, "reading from the WebGPU device failed: " + message_);
    }
    const auto* bytes =
        static_cast<const uint8_t*>(api.BufferGetConstMappedRange(staging_.second, 0, size_));
    ErrorWords errors = {};
    if (checks_) {
      std::memcpy(errors.data(), bytes + size_ - sizeof(errors), sizeof(errors));
    }
    if (errors[0] == 0) {
      std::memcpy(data, bytes + skip_, bytes_);
    }
    give_back();
    stream_.handle_errors(errors);
  }

private:
  void give_back() {
    if (staging_.second != nullptr) {
      if (mapped_) {
        stream_.device_.api().BufferUnmap(staging_.second);
      }
      stream_.readback_pool_.insert(staging_);
      staging_.second = nullptr;
    }
  }

  Stream& stream_;
  uint64_t skip_;
  uint64_t bytes_;
  uint64_t size_ = 0;
  std::pair<uint64_t, WGPUBuffer> staging_;
  bool checks_ = false;
  bool mapped_ = false;
  std::string message_;
  Completion completion_;
};

std::pair<uint64_t, WGPUBuffer> Stream::take_readback_buffer(uint64_t size) {
  constexpr uint64_t kSmallest = 4096;
  constexpr size_t kMostCached = 16;
  auto it = readback_pool_.lower_bound(size);
  if (it != readback_pool_.end() && it->first <= std::max(kSmallest, 4 * size)) {
    const std::pair<uint64_t, WGPUBuffer> found = *it;
    readback_pool_.erase(it);
    return found;
  }
  if (readback_pool_.size() >= kMostCached) { // drop the smallest: it is the cheapest to make again
    device_.api().BufferRelease(readback_pool_.begin()->second);
    readback_pool_.erase(readback_pool_.begin());
  }
  const uint64_t rounded = std::max(kSmallest, std::bit_ceil(size));
  return {rounded,
          create_buffer(rounded, WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst, "readback")};
}

std::unique_ptr<Stream::Readback> Stream::read_async(const Buffer& source, uint64_t offset,
                                                     uint64_t bytes) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  device_.throw_pending_error();
  ++stats_.readbacks;
  return std::make_unique<ReadbackImpl>(*this, source, offset, bytes);
}

void Stream::read_chunk(const Buffer& source, uint64_t offset, void* data, uint64_t bytes) {
  ReadbackImpl(*this, source, offset, bytes).wait(data);
}

void Stream::read(const Buffer& source, uint64_t offset, void* data, uint64_t bytes) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  device_.throw_pending_error();
  ++stats_.readbacks;
  // Two chunks in flight: one is mapped and copied out while the device fills the other.
  constexpr uint64_t kChunk = 32ull << 20;
  std::unique_ptr<ReadbackImpl> next;
  uint64_t next_at = 0;
  for (uint64_t at = 0; at < bytes; at += kChunk) {
    auto started =
        std::make_unique<ReadbackImpl>(*this, source, offset + at, std::min(kChunk, bytes - at));
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

// ---- Odds and ends
// --------------------------------------------------------------------------------

StreamStats Stream::stats() const {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  return stats_;
}

void Stream::set_profiler(Profiler* profiler) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  profiler_ = profiler;
}

Grid Stream::grid_1d(uint64_t count, uint32_t workgroup_size) const {
  const uint64_t groups = (count + workgroup_size - 1) / workgroup_size;
  const uint64_t limit = device_.caps().max_workgroups_per_dim;
  if (groups <= limit) {
    return {static_cast<uint32_t>(groups), 1, 1};
  }
  const uint64_t rows = (groups + limit - 1) / limit;
  return {static_cast<uint32_t>((groups + rows - 1) / rows), static_cast<uint32_t>(rows), 1};
}

std::shared_ptr<Timestamp> Stream::record_timestamp() {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (!device_.caps().timestamps) {
    return nullptr;
  }
  if (timestamps_ == nullptr || timestamps_->full()) {
    timestamps_ = std::make_shared<TimestampBlock>(*this);
  }
  end_pass();
  open_encoder();
  auto stamp = TimestampBlock::record(timestamps_, encoder_);
  count_command();
  return stamp;
}

} // namespace torch_webgpu
