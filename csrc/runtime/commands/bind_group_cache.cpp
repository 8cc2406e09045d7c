#include "runtime/commands/bind_group_cache.h"

#include "runtime/api.h"
#include "runtime/device.h"

namespace torch_webgpu {

WGPUBindGroup BindGroupCache::create(const PipelineLayout& layout, const Binding* bindings,
                                     uint32_t count, WGPUBuffer params, WGPUBuffer errors) const {
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
    add(kErrorsBinding, errors, 0, kErrorWords * sizeof(uint32_t));
  }
  add(kParamsBinding, params, 0, kParamsWindow);
  WGPUBindGroupDescriptor descriptor = WGPU_BIND_GROUP_DESCRIPTOR_INIT;
  descriptor.layout = layout.group;
  descriptor.entryCount = n;
  descriptor.entries = entries.data();
  return device_.api().DeviceCreateBindGroup(device_.handle(), &descriptor);
}

void BindGroupCache::fill(Slot& slot, const PipelineLayout& layout, const Binding* bindings,
                          uint32_t count) {
  if (slot.group != nullptr) {
    device_.api().BindGroupRelease(slot.group);
  }
  slot.group = create(layout, bindings, count, params_, errors_);
  slot.layout = &layout;
  slot.count = count;
  std::copy(bindings, bindings + count, slot.bindings.begin());
  ++created_;
}

void BindGroupCache::forget(const Buffer* buffer) {
  for (Set& set : sets_) {
    for (uint32_t way = 0; way < kWays; ++way) {
      if ((set.buffers[way] & bit_of(buffer)) == 0) {
        continue;
      }
      Slot& slot = set.slots[way];
      const auto begin = slot.bindings.begin();
      if (std::any_of(begin, begin + slot.count,
                      [&](const Binding& binding) { return binding.buffer == buffer; })) {
        device_.api().BindGroupRelease(slot.group);
        slot.group = nullptr;
        slot.layout = nullptr;
        slot.count = 0;
        set.buffers[way] = 0;
      }
    }
  }
}

} // namespace torch_webgpu
