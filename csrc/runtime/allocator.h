// Pooling allocator: one WebGPU buffer per allocation, reused by size class.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "runtime/buffer.h"

namespace torch_webgpu {

class Context;
class Device;

/// Something that comes and goes. `peak` is the largest `current` since its reset, `allocated` and
/// `freed` are all that came and went since theirs.
struct MemoryCounter {
  uint64_t current = 0;
  uint64_t peak = 0;
  uint64_t allocated = 0;
  uint64_t freed = 0;

  void increase(uint64_t amount);
  void decrease(uint64_t amount);
  void reset_peak() { peak = current; }
  void reset_accumulated() { allocated = freed = 0; }
};

/// Names follow torch.cuda.memory_stats.
struct MemoryStats {
  MemoryCounter allocation;       // allocate() calls
  MemoryCounter allocated_bytes;  // that they requested
  MemoryCounter segment;          // buffers held from the driver: live and cached ones
  MemoryCounter reserved_bytes;   // their sizes
  uint64_t num_alloc_retries = 0; // buffers that the driver refused while others were cached
  uint64_t num_ooms = 0;
  uint64_t num_device_alloc = 0; // buffers created, never reset
  uint64_t num_device_free = 0;
  // The bytes of `reserved_bytes` in MemoryPools, including buffers in use, and in freed buffers
  // that are pinned.
  uint64_t graphs = 0;
};

/// The memory that tensors may take, in bytes.
struct MemoryBudget {
  uint64_t total = 0;
  uint64_t free = 0;
  bool estimated = false; // whether `total` is a guess, because the runtime does not tell
};

/// Buffers that are set apart for the graphs of one capture or of several. A buffer that is freed
/// into a pool is reused only while the pool is in use, so no other tensor gets memory that replays
/// write.
class MemoryPool {
  friend class Allocator;
  std::map<uint64_t, std::vector<Buffer*>> cached_; // by size
  std::unordered_set<Buffer*> buffers_;
};

class Allocator {
public:
  /// `before_release` is told of every buffer that goes back to the driver (bind groups that name
  /// it must go first); `drain` waits until the memory of all released buffers is free.
  Allocator(Context& owner, Device& device, std::recursive_mutex& mutex,
            std::function<void(Buffer*)> before_release, std::function<void()> drain);
  ~Allocator();

  /// A buffer of at least `bytes` (0 gives a small one). Contents are undefined. Raises
  /// kOutOfMemory.
  Buffer* allocate(uint64_t bytes);
  /// The buffer may be handed out again at once: the stream is ordered, so later commands come
  /// later.
  void free(Buffer* buffer);
  /// Gives every cached buffer back to the driver, and waits until the memory is free.
  void empty_cache();

  /// Makes allocate() hand out buffers of `pool`. If none of them fits, allocate() moves a cached
  /// or new buffer into it. Null, the initial state: the general pool. Returns the previous pool.
  MemoryPool* use_pool(MemoryPool* pool);
  /// Moves the pool's buffers to the general pool. The pool must not be in use.
  void dissolve(MemoryPool& pool);
  /// A pinned buffer may be freed, but is neither handed out again nor released until unpin() has
  /// been called as many times as pin().
  void pin(const Buffer& buffer);
  void unpin(const Buffer& buffer);

  MemoryStats stats() const;
  /// `total` is the adapter's memory, or where the runtime does not tell, the host's for an adapter
  /// that uses it, and the size of the largest buffer, a lower bound, for a discrete one. WebGPU
  /// does not tell what other processes use: `free` is what this process has not reserved, and no
  /// more than the host has left where the adapter uses its memory.
  MemoryBudget budget() const;
  /// Makes the peaks the present values.
  void reset_peak_stats();
  /// Makes what has come and gone count from 0, and refusals by the driver.
  void reset_accumulated_stats();
  /// The number of the last allocation: Buffer::allocation of the buffer that it gave.
  uint64_t last_allocation() const;

  /// The size class of a request, bytes: steps of 1/8 of a power of two, at most 12.5 % above.
  static uint64_t round_size(uint64_t bytes);

private:
  Buffer* take_cached(uint64_t size);
  void recycle(Buffer* buffer);
  /// Null if there is no memory for it; `refusal` then says who refused.
  Buffer* create(uint64_t size, const char*& refusal);
  void release(Buffer* buffer);
  void trim_cache(uint64_t keep_bytes);
  std::array<MemoryCounter*, 4> all_counters();
  [[noreturn]] void raise_out_of_memory(uint64_t bytes, const std::string& why);

  Context& owner_;
  Device& device_;
  std::recursive_mutex& mutex_;
  std::function<void(Buffer*)> before_release_;
  std::function<void()> drain_;
  std::map<uint64_t, std::vector<Buffer*>> cached_; // by size
  uint64_t cached_bytes_ = 0;
  MemoryPool* pool_ = nullptr; // in use
  uint64_t peak_live_ = 0;     // bytes of buffers in use at once, since the last empty_cache()
  uint64_t slack_percent_;     // that buffers may exceed peak_live_ by
  std::map<uint64_t, uint64_t> trimmed_; // sizes that were given back, with the clock of that time
  uint64_t clock_ = 0;
  MemoryStats stats_;
  uint64_t last_allocation_ = 0;
};

} // namespace torch_webgpu
