// The storage bindings of one dispatch.
#pragma once

#include <ATen/core/TensorBase.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "backend/tensor.h"
#include "launch/dtypes.h"
#include "launch/target_scope.h"
#include "runtime/context.h"
#include "wgsl/kernel_source.h"

namespace torch_webgpu {

/// Bytes [begin, end) of a buffer.
struct Extent {
  uint64_t begin;
  uint64_t end;
  uint64_t bytes() const { return end - begin; }
};

/// Collects the buffers of a dispatch. A buffer gets one slot however often it is added (WebGPU
/// forbids binding it twice in a dispatch that writes it), and a slot as many bindings as the
/// target's limit on a binding's size makes necessary. The kernel must be built with windows().
class BindingList {
public:
  /// `op` names the op in errors.
  explicit BindingList(const char* op) : op_(op) {}

  /// The bytes per binding of a buffer that needs several.
  static uint64_t window_bytes(const ShaderTarget& target) {
    return target.max_storage_binding_size / SlotWindows::kAlignment * SlotWindows::kAlignment;
  }
  /// The bytes of a larger buffer that one binding can cover, wherever they start: bindings start
  /// at aligned offsets and end at whole words.
  static uint64_t safe_reach(const ShaderTarget& target) {
    const uint64_t most = window_bytes(target);
    return std::max(most - std::min<uint64_t>(most, 512), most / 2);
  }
  /// Whether one binding can hold those bytes of a larger buffer.
  static bool fits_one(const Buffer& buffer, Extent extent, const ShaderTarget& target) {
    return bound_part(buffer, extent).bytes() <= window_bytes(target);
  }

  /// The slot of a buffer of elements of that size, a power of two.
  uint32_t add(const Buffer& buffer, uint32_t element_bytes) {
    return add(buffer, element_bytes, {0, buffer.size});
  }
  /// The same where the kernel touches those bytes of the buffer only: one that is larger than a
  /// binding is bound from base() on.
  uint32_t add(const Buffer& buffer, uint32_t element_bytes, Extent extent);
  /// Where the slot's first binding starts in its buffer, in bytes.
  uint64_t base(uint32_t slot) const { return slots_[slot].bound.begin; }
  /// For kernels that name a binding themselves instead of using accessors: raises if the slot
  /// needs several.
  void require_one_binding(uint32_t slot) const;

  /// How slots are cut, for the declarations of the operands.
  SlotWindows windows() const;
  PipelineKey key(PipelineKey key) const {
    key.windows = windows().key();
    key.target = target().number;
    return key;
  }
  /// What the launch is planned for; `buffer` is one of its operands. Operands must have one
  /// context, the first one's.
  const ShaderTarget& target_with(const Buffer& buffer) {
    if (C10_UNLIKELY(buffer.context != context_)) {
      take_context(buffer);
    }
    return *target_;
  }
  /// The operands' context; the current device's as long as there are none.
  Context& owner() const { return C10_LIKELY(context_ != nullptr) ? *context_ : current_context(); }
  const ShaderTarget& target() const {
    return C10_LIKELY(target_ != nullptr) ? *target_ : plan_target(current_context());
  }
  const Binding* data() const { return bindings_.data(); }
  uint32_t size() const { return num_bindings_; }

private:
  // The aligned part of a buffer larger than a binding that covers `extent`.
  static Extent bound_part(const Buffer& buffer, Extent extent) {
    return {extent.begin / SlotWindows::kAlignment * SlotWindows::kAlignment,
            std::min((std::max(extent.end, extent.begin + 1) + 15) / 16 * 16, buffer.size)};
  }
  void add_windows(const Buffer& buffer, Extent extent);
  void take_context(const Buffer& buffer);

  struct Slot {
    Extent bound;     // of the buffer
    uint32_t binding; // the first
  };

  const char* op_;
  Context* context_ = nullptr;
  const ShaderTarget* target_ = nullptr;
  std::array<Binding, kMaxBindings> bindings_;
  std::array<Slot, kMaxBindings> slots_;
  uint32_t num_bindings_ = 0;
  uint32_t num_slots_ = 0;
};

} // namespace torch_webgpu
