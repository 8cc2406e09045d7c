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

/// The only place that builds bind groups. Direct mapped: a collision replaces, so the cache is
/// bounded without bookkeeping on the hot path.
class BindGroupCache {
public:
  /// Every group binds a window of `params`; those of kernels that check indices bind `errors`.
  BindGroupCache(Device& device, WGPUBuffer params, WGPUBuffer errors)
      : device_(device), params_(params), errors_(errors), slots_(kSlots) {}

  WGPUBindGroup get(const PipelineLayout& layout, const Binding* bindings, uint32_t count) {
    static_assert(kSlots == 1u << 12, "the shift below keeps 12 bits");
    Slot& slot = slots_[hash(&layout, bindings, count) >> 52];
    if (slot.layout == &layout && slot.count == count &&
        std::equal(bindings, bindings + count, slot.bindings.begin())) {
      return slot.group;
    }
    fill(slot, layout, bindings, count);
    return slot.group;
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
  static constexpr size_t kSlots = 4096;

  struct Slot {
    WGPUBindGroup group = nullptr;
    const PipelineLayout* layout = nullptr;
    uint32_t count = 0;
    std::array<Binding, kMaxBindings> bindings;
  };

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
  std::vector<Slot> slots_;
  uint64_t created_ = 0;
};

} // namespace torch_webgpu
