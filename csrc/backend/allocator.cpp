#include "backend/allocator.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "backend/registration.h"
#include "backend/tensor.h"
#include "runtime/allocator.h"
#include "runtime/context.h"
#include "runtime/host_block.h"

namespace torch_webgpu {
namespace {

// Buffers by address, for DataPtrs that only have one. One is entered when it is first a tensor's,
// so the pool's recycling costs nothing; a released buffer's entry stays until its addresses are
// used again, which is harmless, because a caller that asks for an address keeps its buffer alive.
class AddressTable {
public:
  void add(const Buffer& buffer) {
    const uintptr_t begin = buffer.address;
    const uintptr_t end = begin + buffer.size;
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = ranges_.lower_bound(begin);
    if (it != ranges_.begin() && std::prev(it)->second.end > begin) {
      --it;
    }
    while (it != ranges_.end() && it->first < end) {
      it = ranges_.erase(it);
    }
    ranges_[begin] = {end, &buffer};
  }

  BufferPosition find(const void* data) {
    const auto address = reinterpret_cast<uintptr_t>(data);
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = ranges_.upper_bound(address);
    if (it == ranges_.begin() || address >= (--it)->second.end) {
      return {};
    }
    return {it->second.buffer, address - it->first};
  }

  static AddressTable& instance() {
    static auto* table = new AddressTable; // outlives every tensor
    return *table;
  }

private:
  struct Range {
    uintptr_t end = 0;
    const Buffer* buffer = nullptr;
  };
  std::mutex mutex_;
  std::map<uintptr_t, Range> ranges_;
};

// The buffer that is bound for storages of zero bytes.
struct EmptyBuffer {
  explicit EmptyBuffer(Context& context) : buffer(context.allocator.allocate(0)) {}
  const Buffer* buffer;
};
const ContextSlot<EmptyBuffer> empty_buffers;

// For torch.profiler's profile_memory. `change` in bytes, negative when the memory is freed.
void tell_profiler(Context& context, uintptr_t address, int64_t change) {
  if (c10::memoryProfilingEnabled()) [[unlikely]] {
    const MemoryStats stats = context.allocator.stats();
    c10::reportMemoryUsageToProfiler(reinterpret_cast<void*>(address), change,
                                     stats.allocated_bytes.current, stats.reserved_bytes.current,
                                     device_of(context));
  }
}

// The context of the device that is meant, null if it was not used yet.
Context* known_context(c10::DeviceIndex index) {
  return context_if_initialized(static_cast<uint32_t>(resolve_ordinal(index)));
}

// The pool has no parts for small and large requests: there is the sum alone.
c10::CachingAllocator::StatArray stat(const MemoryCounter& counter) {
  c10::CachingAllocator::StatArray out;
  c10::CachingAllocator::Stat& all =
      out[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  all.current = static_cast<int64_t>(counter.current);
  all.peak = static_cast<int64_t>(counter.peak);
  all.allocated = static_cast<int64_t>(counter.allocated);
  all.freed = static_cast<int64_t>(counter.freed);
  return out;
}

class DeviceAllocator final : public c10::DeviceAllocator {
public:
  // Without an index: of the current device.
  explicit DeviceAllocator(c10::DeviceIndex index = -1) : index_(index) {}

  c10::DataPtr allocate(size_t bytes) override {
    register_operators();
    const c10::Device device = webgpu_device(index_ < 0 ? current_device() : index_);
    if (bytes == 0) {
      return {nullptr, device};
    }
    Buffer* buffer = context(static_cast<uint32_t>(device.index())).allocator.allocate(bytes);
    if (!buffer->listed) { // new, or used by a loaded program until now
      AddressTable::instance().add(*buffer);
      buffer->listed = true;
    }
    tell_profiler(*buffer->context, buffer->address, static_cast<int64_t>(bytes));
    return {reinterpret_cast<void*>(buffer->address), buffer, &free_buffer, device};
  }

  void copy_data(void* target, const void* source, size_t bytes) const override {
    // Only c10::Allocator::clone calls this, and the target is new.
    if (bytes != 0) {
      const BufferPosition from = find_position(source);
      const BufferPosition to = find_position(target);
      TORCH_INTERNAL_ASSERT(from.buffer != nullptr && to.buffer != nullptr);
      // Whole words, to which buffers are padded.
      to.buffer->context->stream.copy(*from.buffer, from.offset, *to.buffer, to.offset,
                                      (bytes + 3) / 4 * 4);
    }
  }

  bool initialized() override { return !initialized_contexts().empty(); }

  void emptyCache(c10::MempoolId_t) override {
    for (Context* ctx : initialized_contexts()) {
      ctx->allocator.empty_cache();
    }
  }

  // One ordered stream: memory is never reused ahead of the commands that use it.
  void recordStream(const c10::DataPtr&, c10::Stream) override {}

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    c10::CachingDeviceAllocator::DeviceStats out;
    if (Context* ctx = known_context(index)) {
      const MemoryStats stats = ctx->allocator.stats();
      out.allocation = stat(stats.allocation);
      out.allocated_bytes = out.requested_bytes = stat(stats.allocated_bytes);
      // A block is active as long as it is allocated, for no other stream can still use it.
      out.active = out.allocation;
      out.active_bytes = out.allocated_bytes;
      out.segment = stat(stats.segment);
      out.reserved_bytes = stat(stats.reserved_bytes);
      out.num_alloc_retries = static_cast<int64_t>(stats.num_alloc_retries);
      out.num_ooms = static_cast<int64_t>(stats.num_ooms);
      out.num_device_alloc = static_cast<int64_t>(stats.num_device_alloc);
      out.num_device_free = static_cast<int64_t>(stats.num_device_free);
    }
    return out;
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    const auto device = static_cast<uint32_t>(resolve_ordinal(index));
    const MemoryBudget budget = context(device).allocator.budget();
    return {budget.free, budget.total};
  }

  void resetAccumulatedStats(c10::DeviceIndex index) override {
    if (Context* ctx = known_context(index)) {
      ctx->allocator.reset_accumulated_stats();
    }
  }

  void resetPeakStats(c10::DeviceIndex index) override {
    if (Context* ctx = known_context(index)) {
      ctx->allocator.reset_peak_stats();
    }
  }

private:
  const c10::DeviceIndex index_;
};

// Freed blocks are kept until empty_cache(), as on CUDA, because the system clears each page of a
// new one, and a device's buffer over it takes milliseconds to make. A block is handed out again
// once no device has to read it any more. A forked child, whose copy of the mutex may be locked for
// ever, takes plain memory and frees none.
class PinnedAllocator final : public at::HostAllocator {
public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0 || in_bad_fork()) {
      return c10::GetCPUAllocator()->allocate(bytes);
    }
    std::lock_guard<std::mutex> lock(mutex_);
    Block block{bytes, take(bytes)};
    void* data = block.memory->data();
    stats_.active_requests.increase(1);
    stats_.active_bytes.increase(block.memory->bytes());
    live_[reinterpret_cast<uintptr_t>(data)] = std::move(block);
    return {data, data, &free_pinned, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }

  void copy_data(void* target, const void* source, size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }

  bool record_event(void* data, void* /*context*/, c10::Stream /*stream*/) override {
    return owns(data);
  }

  void empty_cache() override {
    if (in_bad_fork()) {
      return;
    }
    const auto start = Clock::now();
    Cache dropped;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      dropped = drop_cached();
    }
    std::vector<Context*> used;
    for (Context* ctx : initialized_contexts()) {
      if (std::ranges::any_of(dropped,
                              [&](const auto& block) { return block->is_buffer_of(*ctx); })) {
        used.push_back(ctx);
      }
    }
    const bool is_empty = dropped.empty();
    dropped.clear();
    for (Context* ctx : used) {
      ctx->stream.drain(); // Dawn frees the memory behind later submissions only
    }
    if (!is_empty) {
      std::lock_guard<std::mutex> lock(mutex_);
      stats_.host_free_time.increase(microseconds_since(start));
    }
  }

  at::HostStats get_stats() override {
    std::lock_guard<std::mutex> lock(mutex_);
    at::HostStats out = stats_;
    out.num_host_alloc = stats_.allocations.allocated;
    out.num_host_free = stats_.allocations.freed;
    return out;
  }
  void reset_accumulated_stats() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (c10::CachingAllocator::Stat* stat : all_stats()) {
      stat->reset_accumulated();
    }
    stats_.host_alloc_time.reset_accumulated();
    stats_.host_free_time.reset_accumulated();
  }
  void reset_peak_stats() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (c10::CachingAllocator::Stat* stat : all_stats()) {
      stat->reset_peak();
    }
    stats_.host_alloc_time.reset_peak();
    stats_.host_free_time.reset_peak();
  }

  PinnedPosition find(const void* data) {
    if (in_bad_fork()) {
      return {};
    }
    const auto address = reinterpret_cast<uintptr_t>(data);
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = live_.upper_bound(address);
    if (it == live_.begin() || address - (--it)->first >= it->second.requested) {
      return {};
    }
    return {it->second.memory, address - it->first};
  }

  bool owns(const void* data) { return find(data).block != nullptr; }

  static PinnedAllocator& instance() {
    static auto* allocator = new PinnedAllocator; // outlives every tensor
    return *allocator;
  }

private:
  struct Block {
    size_t requested = 0; // bytes, by the tensor
    std::shared_ptr<HostBlock> memory;
  };
  using Cache = std::vector<std::shared_ptr<HostBlock>>;
  using Clock = std::chrono::steady_clock;

  static int64_t microseconds_since(Clock::time_point start) {
    return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
  }

  static void free_pinned(void* data) {
    if (in_bad_fork()) {
      return;
    }
    PinnedAllocator& self = instance();
    std::lock_guard<std::mutex> lock(self.mutex_);
    const auto it = self.live_.find(reinterpret_cast<uintptr_t>(data));
    if (it == self.live_.end()) {
      return;
    }
    Block block = std::move(it->second);
    self.live_.erase(it);
    self.stats_.active_requests.decrease(1);
    self.stats_.active_bytes.decrease(block.memory->bytes());
    self.cached_.push_back(std::move(block.memory));
  }

  // A kept block of the size's class, or a new one.
  std::shared_ptr<HostBlock> take(size_t bytes) {
    constexpr size_t kPage = HostBlock::kAlignment;
    // At most an eighth more, or what is left of a page.
    const size_t size = (torch_webgpu::Allocator::round_size(bytes) + kPage - 1) / kPage * kPage;
    // The one that was freed last, if there are several.
    for (auto kept = cached_.rbegin(); kept != cached_.rend(); ++kept) {
      if ((*kept)->bytes() == size && !(*kept)->is_in_use()) {
        std::shared_ptr<HostBlock> block = std::move(*kept);
        cached_.erase(std::next(kept).base());
        return block;
      }
    }
    const auto start = Clock::now();
    std::shared_ptr<HostBlock> block;
    try {
      block = std::make_shared<HostBlock>(size);
    } catch (const std::bad_alloc&) {
      drop_cached();
      try {
        block = std::make_shared<HostBlock>(size);
      } catch (const std::bad_alloc&) {
        TORCH_CHECK(false, "cannot allocate ", bytes, " bytes of pinned memory");
      }
    }
    stats_.host_alloc_time.increase(microseconds_since(start));
    stats_.allocations.increase(1);
    stats_.allocated_bytes.increase(size);
    return block;
  }

  Cache drop_cached() {
    for (const auto& block : cached_) {
      stats_.allocations.decrease(1);
      stats_.allocated_bytes.decrease(block->bytes());
    }
    return std::exchange(cached_, {});
  }

  std::array<c10::CachingAllocator::Stat*, 4> all_stats() {
    return {&stats_.active_requests, &stats_.active_bytes, &stats_.allocations,
            &stats_.allocated_bytes};
  }

  std::mutex mutex_;
  std::map<uintptr_t, Block> live_;
  Cache cached_;
  at::HostStats stats_;
};

} // namespace

void free_buffer(void* buffer) {
  // A forked child has no context: its copy of the parent's tensors owns nothing.
  if (!in_bad_fork()) {
    auto* freed = static_cast<Buffer*>(buffer);
    Context& context = *freed->context;
    // The buffer may be another allocation's once it is freed.
    const uintptr_t address = freed->address;
    const auto bytes = static_cast<int64_t>(freed->requested);
    context.allocator.free(freed);
    tell_profiler(context, address, -bytes);
  }
}

BufferPosition find_position(const c10::DataPtr& data) {
  TORCH_CHECK(data.device().type() == kWebGPU,
              "Expected all tensors to be on the same device, but found at least two devices, ",
              webgpu_device(), " and ", data.device(), "!");
  if (data.get() == nullptr) {
    const auto index = static_cast<uint32_t>(resolve_ordinal(data.device().index()));
    return {empty_buffers.of(context(index)).buffer, 0};
  }
  const BufferPosition place = find_position(data.get());
  TORCH_CHECK(place.buffer != nullptr, "address ", data.get(),
              " is in no allocation of torch_webgpu, though its storage has the device webgpu");
  return place;
}

void raise_beyond_storage(const at::TensorBase& tensor) {
  const int64_t needed =
      static_cast<int64_t>(tensor.itemsize()) *
      (tensor.storage_offset() +
       at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), /*itemsize=*/1));
  TORCH_CHECK(false, "sizes ", tensor.sizes(), ", strides ", tensor.strides(), ", storage offset ",
              tensor.storage_offset(), ", and itemsize ", tensor.itemsize(),
              " requiring a storage size of ", needed, " are out of bounds for storage of size ",
              tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes());
}

c10::Allocator* device_allocator(c10::Device device) {
  // Storages and c10 point to them and own none.
  static auto* of_current = new DeviceAllocator;
  static const auto* of_index = [] {
    auto* all = new std::array<DeviceAllocator*, kMostDevices>;
    for (uint32_t index = 0; index < kMostDevices; ++index) {
      (*all)[index] = new DeviceAllocator(static_cast<c10::DeviceIndex>(index));
    }
    return all;
  }();
  return device.index() < 0 ? of_current : of_index->at(static_cast<size_t>(device.index()));
}

BufferPosition find_position(const void* data) { return AddressTable::instance().find(data); }

std::optional<c10::Device> find_device(const void* data) {
  const BufferPosition place = find_position(data);
  return place.buffer == nullptr ? std::nullopt : std::optional(device_of(*place.buffer->context));
}

at::HostAllocator* pinned_allocator() { return &PinnedAllocator::instance(); }

PinnedPosition find_pinned(const void* data) { return PinnedAllocator::instance().find(data); }

bool is_pinned(const void* data) { return PinnedAllocator::instance().owns(data); }

} // namespace torch_webgpu
