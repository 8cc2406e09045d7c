// A cache of bind groups, keyed by what they bind.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "runtime/buffer.h"
#include "runtime/commands/command_sink.h"
#include "runtime/pipeline.h"

namespace torch_webgpu {

class Device;

/// The only place that builds bind groups. A hash chooses a set of `kWays` slots; a group that is
/// not there replaces the oldest of them, so the cache is bounded and a hit changes nothing. A
/// token of a language model binds more than a thousand groups that come again with the next token.
/// With one slot for each hash, a quarter of them would take each other's places.
class BindGroupCache {
public:
  /// Every group binds a window of `params`; those of kernels that check indices bind `errors`.
  BindGroupCache(Device& device, WGPUBuffer params, WGPUBuffer errors)
      : device_(device), params_(params), errors_(errors), sets_(kSets) {}

  WGPUBindGroup get(const PipelineLayout& layout, const Binding* bindings, uint32_t count) {
    const uint64_t key = hash(&layout, bindings, count);
    Set& set = sets_[key >> (64 - kSetBits)];
    for (uint32_t way = 0; way < kWays; ++way) {
      const Slot& slot = set.slots[way];
      if (set.keys[way] == key && slot.layout == &layout && slot.count == count &&
          std::equal(bindings, bindings + count, slot.bindings.begin())) {
        return slot.group;
      }
    }
    const uint32_t way = set.oldest;
    set.oldest = (way + 1) % kWays;
    set.keys[way] = key;
    set.buffers[way] = 0;
    for (uint32_t i = 0; i < count; ++i) {
      set.buffers[way] |= bit_of(bindings[i].buffer);
    }
    fill(set.slots[way], layout, bindings, count);
    return set.slots[way].group;
  }
  /// A group that is not kept here, with parameters and errors in other buffers. The caller
  /// releases it.
  WGPUBindGroup create(const PipelineLayout& layout, const Binding* bindings, uint32_t count,
                       WGPUBuffer params, WGPUBuffer errors) const;
  /// Drops the groups that bind `buffer`.
  void forget(const Buffer* buffer);
  /// Groups created until now: the cache's misses.
  uint64_t created() const { return created_; }

private:
  static constexpr uint32_t kSetBits = 11;
  static constexpr size_t kSets = size_t{1} << kSetBits;
  static constexpr uint32_t kWays = 4;

  struct Slot {
    WGPUBindGroup group = nullptr;
    const PipelineLayout* layout = nullptr;
    uint32_t count = 0;
    std::array<Binding, kMaxBindings> bindings;
  };

  struct Set {
    std::array<uint64_t, kWays> keys = {};    // hashes, compared before what is bound
    std::array<uint64_t, kWays> buffers = {}; // `bit_of` each bound buffer; 0: empty
    uint32_t oldest = 0;
    std::array<Slot, kWays> slots;
  };

  // Tells most slots that do not bind a buffer without a look at what they bind.
  static uint64_t bit_of(const Buffer* buffer) {
    return uint64_t{1} << (reinterpret_cast<uintptr_t>(buffer) * 0x9e3779b97f4a7c15ull >> 58);
  }
  static uint64_t hash(const PipelineLayout* layout, const Binding* bindings, uint32_t count) {
    uint64_t h = reinterpret_cast<uintptr_t>(layout);
    for (uint32_t i = 0; i < count; ++i) {
      h = (h ^ reinterpret_cast<uintptr_t>(bindings[i].buffer)) * 0x9e3779b97f4a7c15ull;
      h ^= (h >> 29) + bindings[i].offset + (bindings[i].size << 1);
    }
    return h * 0xbf58476d1ce4e5b9ull;
  }
  void fill(Slot& slot, const PipelineLayout& layout, const Binding* bindings, uint32_t count);

  Device& device_;
  WGPUBuffer params_;
  WGPUBuffer errors_;
  std::vector<Set> sets_;
  uint64_t created_ = 0;
};

} // namespace torch_webgpu
