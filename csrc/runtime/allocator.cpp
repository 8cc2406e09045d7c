#include "runtime/allocator.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <string>
#include <utility>

#include "runtime/api.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/platform.h"

namespace torch_webgpu {
namespace {

constexpr uint64_t kSmallestBuffer = 256;
// Before a new buffer is created, cached ones are given back until all buffers together exceed the
// most that was ever live at once by at most a slack (or what is live by kSlackFloor). The slack
// grows whenever a buffer must be created of a size that was given back a short time ago: the next
// step of a training loop then finds the buffers of the step before it. The sizes of the forward
// and the backward pass differ, so steps of GPT-2 need about 1.3 of what is live at their peak, and
// those of ResNet 1.15. Creating and releasing 1 GiB takes 47 ms on an H200.
constexpr uint64_t kLeastSlackPercent = 10;
constexpr uint64_t kMostSlackPercent = 100;
constexpr uint64_t kSlackStepPercent = 5;
constexpr uint64_t kSlackFloor = 64ull << 20;
// A cached buffer is stale once this many others were freed after it. A program that repeats its
// steps would have used it again by then.
constexpr uint64_t kStale = 10'000;

using BuffersBySize = std::map<uint64_t, std::vector<Buffer*>>;

// Takes the best fit within one size step, so that less than an eighth is wasted. Among buffers of
// equal size it takes the most recently freed one, which is most likely in the GPU's caches.
Buffer* take_fitting(BuffersBySize& cached, uint64_t size) {
  auto it = cached.lower_bound(size);
  if (it == cached.end() || it->first > size + size / 8) {
    return nullptr;
  }
  Buffer* buffer = it->second.back();
  it->second.pop_back();
  if (it->second.empty()) {
    cached.erase(it);
  }
  return buffer;
}

std::string megabytes(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

} // namespace

void MemoryCounter::increase(uint64_t amount) {
  current += amount;
  allocated += amount;
  peak = std::max(peak, current);
}

void MemoryCounter::decrease(uint64_t amount) {
  current -= amount;
  freed += amount;
}

Allocator::Allocator(Context& owner, Device& device, std::recursive_mutex& mutex,
                     std::function<void(Buffer*)> before_release, std::function<void()> drain)
    : owner_(owner), device_(device), mutex_(mutex), before_release_(std::move(before_release)),
      drain_(std::move(drain)), slack_percent_(kLeastSlackPercent) {}

Allocator::~Allocator() = default;

uint64_t Allocator::round_size(uint64_t bytes) {
  if (bytes <= kSmallestBuffer * 8) {
    return std::max(kSmallestBuffer,
                    (bytes + kSmallestBuffer - 1) / kSmallestBuffer * kSmallestBuffer);
  }
  const uint64_t step = std::bit_floor(bytes - 1) / 8;
  return (bytes + step - 1) / step * step;
}

Buffer* Allocator::allocate(uint64_t bytes) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  const uint64_t limit = device_.caps().max_buffer_size;
  if (bytes > limit) {
    raise_out_of_memory(bytes, "the device's largest buffer is " + megabytes(limit));
  }
  // A rounded size past the limit would fail where the plain one fits.
  const uint64_t size = std::min(round_size(bytes), (limit / 16) * 16);
  Buffer* buffer = take_cached(std::max(size, bytes));
  const char* refusal = "";
  if (buffer == nullptr) {
    buffer = create(std::max(size, bytes), refusal);
  }
  if (buffer == nullptr) {
    ++stats_.num_alloc_retries;
    empty_cache();
    buffer = create(std::max(size, bytes), refusal);
  }
  if (buffer == nullptr) {
    raise_out_of_memory(bytes, refusal);
  }
  if (pool_ != nullptr && buffer->pool == nullptr) {
    buffer->pool = pool_;
    pool_->buffers_.insert(buffer);
    stats_.graphs += buffer->size;
  }
  buffer->requested = bytes;
  buffer->allocation = ++last_allocation_;
  stats_.allocation.increase(1);
  stats_.allocated_bytes.increase(bytes);
  return buffer;
}

void Allocator::free(Buffer* buffer) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  stats_.allocation.decrease(1);
  stats_.allocated_bytes.decrease(buffer->requested);
  buffer->last_use = ++clock_;
  if (buffer->pins != 0) {
    buffer->parked = true;
    if (buffer->pool == nullptr) {
      stats_.graphs += buffer->size;
    }
    return;
  }
  recycle(buffer);
}

void Allocator::recycle(Buffer* buffer) {
  if (buffer->pool != nullptr) {
    buffer->pool->cached_[buffer->size].push_back(buffer);
    return;
  }
  cached_bytes_ += buffer->size;
  cached_[buffer->size].push_back(buffer);
}

Buffer* Allocator::take_cached(uint64_t size) {
  Buffer* buffer = pool_ != nullptr ? take_fitting(pool_->cached_, size) : nullptr;
  if (buffer == nullptr) {
    buffer = take_fitting(cached_, size);
    cached_bytes_ -= buffer != nullptr ? buffer->size : 0;
  }
  return buffer;
}

MemoryPool* Allocator::use_pool(MemoryPool* pool) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  return std::exchange(pool_, pool);
}

void Allocator::dissolve(MemoryPool& pool) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  for (Buffer* buffer : pool.buffers_) {
    buffer->pool = nullptr;
    stats_.graphs -= buffer->parked ? 0 : buffer->size;
  }
  for (const auto& [size, buffers] : pool.cached_) {
    std::ranges::for_each(buffers, [this](Buffer* buffer) { recycle(buffer); });
  }
  pool.buffers_.clear();
  pool.cached_.clear();
}

void Allocator::pin(const Buffer& pinned) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  ++const_cast<Buffer&>(pinned).pins; // every buffer is this allocator's
}

void Allocator::unpin(const Buffer& pinned) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  auto& buffer = const_cast<Buffer&>(pinned);
  if (--buffer.pins == 0 && buffer.parked) {
    buffer.parked = false;
    stats_.graphs -= buffer.pool == nullptr ? buffer.size : 0;
    recycle(&buffer);
  }
}

Buffer* Allocator::create(uint64_t size, const char*& refusal) {
  const uint64_t live = stats_.reserved_bytes.current - cached_bytes_ + size;
  peak_live_ = std::max(peak_live_, live);
  const auto given_back = trimmed_.find(size);
  if (given_back != trimmed_.end()) {
    if (clock_ - given_back->second <= kStale) {
      slack_percent_ = std::min(slack_percent_ + kSlackStepPercent, kMostSlackPercent);
    }
    trimmed_.erase(given_back);
  }
  trim_cache(std::max(kSlackFloor, peak_live_ + peak_live_ * slack_percent_ / 100 - live));
  WGPUBufferDescriptor descriptor = WGPU_BUFFER_DESCRIPTOR_INIT;
  descriptor.label = to_view("tensor");
  descriptor.usage = WGPUBufferUsage_Storage | WGPUBufferUsage_CopySrc | WGPUBufferUsage_CopyDst;
  descriptor.size = (size + 15) / 16 * 16;
  WGPUBuffer handle = nullptr;
  const Device::ScopedError error = device_.with_error_scopes(
      [&] { handle = device_.api().DeviceCreateBuffer(device_.handle(), &descriptor); });
  if (!error.message.empty() || handle == nullptr) {
    if (handle != nullptr) {
      device_.api().BufferRelease(handle);
    }
    if (!error.message.empty() && !error.out_of_memory) {
      raise(ErrorKind::kRuntime, "could not create a buffer: " + error.message);
    }
    refusal = "the driver refused it";
    return nullptr;
  }
  void* address = platform::reserve_addresses(descriptor.size);
  if (address == nullptr) {
    device_.api().BufferRelease(handle);
    refusal = "no address space is left";
    return nullptr;
  }
  auto* buffer = new Buffer;
  buffer->handle = handle;
  buffer->context = &owner_;
  buffer->size = descriptor.size;
  buffer->address = reinterpret_cast<uintptr_t>(address);
  ++stats_.num_device_alloc;
  stats_.segment.increase(1);
  stats_.reserved_bytes.increase(buffer->size);
  return buffer;
}

void Allocator::release(Buffer* buffer) {
  before_release_(buffer);
  ++stats_.num_device_free;
  stats_.segment.decrease(1);
  stats_.reserved_bytes.decrease(buffer->size);
  platform::release_addresses(reinterpret_cast<void*>(buffer->address), buffer->size);
  // Released, not destroyed: open and submitted commands that use it keep it alive until they are
  // done.
  device_.api().BufferRelease(buffer->handle);
  delete buffer;
}

void Allocator::trim_cache(uint64_t keep_bytes) {
  if (cached_bytes_ <= keep_bytes) {
    return;
  }
  std::vector<Buffer*> order;
  for (auto& [size, buffers] : cached_) {
    order.insert(order.end(), buffers.begin(), buffers.end());
  }
  // Releases stale buffers first, then the largest ones, so that most buffers stay. By age alone it
  // would release the buffer that is needed next, because training repeats its steps.
  const auto is_stale = [&](const Buffer* buffer) { return clock_ - buffer->last_use > kStale; };
  std::stable_sort(order.begin(), order.end(), [&](const Buffer* a, const Buffer* b) {
    return is_stale(a) != is_stale(b) ? is_stale(a) : a->size > b->size;
  });
  cached_.clear();
  for (Buffer* buffer : order) {
    if (cached_bytes_ > keep_bytes) {
      cached_bytes_ -= buffer->size;
      if (!is_stale(buffer)) {
        trimmed_[buffer->size] = clock_;
      }
      release(buffer);
    } else {
      cached_[buffer->size].push_back(buffer);
    }
  }
}

void Allocator::empty_cache() {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  trim_cache(0);
  drain_();
  peak_live_ = stats_.reserved_bytes.current;
  slack_percent_ = kLeastSlackPercent;
  trimmed_.clear();
}

MemoryStats Allocator::stats() const {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  return stats_;
}

MemoryBudget Allocator::budget() const {
  const AdapterInfo& adapter = device_.info();
  MemoryBudget budget;
  budget.total = uint64_t{adapter.memory_mib} << 20;
  budget.estimated = adapter.memory_mib == 0;
  const platform::Memory host = adapter.discrete ? platform::Memory{} : platform::main_memory();
  if (budget.estimated) {
    budget.total = adapter.discrete ? device_.caps().max_buffer_size : host.total;
  }
  const uint64_t reserved = stats().reserved_bytes.current;
  budget.free = budget.total - std::min(reserved, budget.total);
  if (!adapter.discrete && host.total != 0) {
    budget.total = std::min(budget.total, host.total);
    budget.free = std::min(budget.free, host.available);
  }
  return budget;
}

void Allocator::reset_peak_stats() {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  for (MemoryCounter* counter : all_counters()) {
    counter->reset_peak();
  }
}

void Allocator::reset_accumulated_stats() {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  for (MemoryCounter* counter : all_counters()) {
    counter->reset_accumulated();
  }
  stats_.num_alloc_retries = 0;
  stats_.num_ooms = 0;
}

std::array<MemoryCounter*, 4> Allocator::all_counters() {
  return {&stats_.allocation, &stats_.allocated_bytes, &stats_.segment, &stats_.reserved_bytes};
}

uint64_t Allocator::last_allocation() const {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  return last_allocation_;
}

void Allocator::raise_out_of_memory(uint64_t bytes, const std::string& why) {
  ++stats_.num_ooms;
  raise(ErrorKind::kOutOfMemory,
        "WebGPU out of memory. Tried to allocate " + megabytes(bytes) + ": " + why + ". " +
            megabytes(stats_.allocated_bytes.current) + " are allocated by tensors and " +
            megabytes(stats_.reserved_bytes.current) + " reserved in total" +
            (stats_.graphs == 0
                 ? ""
                 : ", of which " + megabytes(stats_.graphs) + " are held by graphs") +
            " on " + device_.info().name + ".");
}

} // namespace torch_webgpu
