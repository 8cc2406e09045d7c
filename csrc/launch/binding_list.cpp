#include "launch/binding_list.h"

#include <algorithm>
#include <bit>

#include "launch/pipelines.h"

namespace torch_webgpu {
namespace {

// Kernels count elements in 32 bits, and number invocations in groups beyond the last element.
constexpr uint64_t kMaxElements = (uint64_t{1} << 32) - (uint64_t{1} << 25);

} // namespace

void BindingList::take_context(const Buffer& buffer) {
  if (context_ != nullptr) {
    check_context(op_, buffer, *context_); // raises
  }
  if (in_bad_fork()) {
    torch_webgpu::context(); // raises
  }
  context_ = buffer.context;
  target_ = &plan_target(*context_);
}

uint32_t BindingList::add(const Buffer& buffer, uint32_t element_bytes, uint64_t begin,
                          uint64_t end) {
  const ShaderTarget& target = target_with(buffer);
  for (uint32_t slot = 0; slot < num_slots_; ++slot) {
    if (bindings_[slots_[slot].binding].buffer == &buffer) {
      TORCH_CHECK_NOT_IMPLEMENTED(
          slots_[slot].begin <= begin && end <= slots_[slot].end, op_,
          "(): two tensors of one storage, which is larger than a storage binding, are too far "
          "apart to be bound together");
      return slot;
    }
  }
  TORCH_INTERNAL_ASSERT(num_bindings_ < kMaxBindings, op_, "(): more operands than bindings");
  if (buffer.size <= target.max_storage_binding_size) {
    slots_[num_slots_] = {0, buffer.size, num_bindings_};
    bindings_[num_bindings_++] = {&buffer, 0, 0};
  } else {
    add_windows(buffer, begin, end);
  }
  const Slot& slot = slots_[num_slots_];
  TORCH_CHECK_NOT_IMPLEMENTED((slot.end - slot.begin) >> std::countr_zero(element_bytes) <=
                                  kMaxElements,
                              op_, "(): a tensor of more than 2^32 elements");
  return num_slots_++;
}

// Binds the windows that hold bytes [begin, end) of the buffer, as slot number num_slots_.
void BindingList::add_windows(const Buffer& buffer, uint64_t begin, uint64_t end) {
  const ShaderTarget& target = *target_;
  Slot& slot = slots_[num_slots_];
  slot = {begin / SlotWindows::kAlignment * SlotWindows::kAlignment,
          std::min((std::max(end, begin + 1) + 15) / 16 * 16, buffer.size), num_bindings_};
  // Kernels that check indices bind one buffer more, the error words.
  const uint64_t most = std::min(target.max_storage_buffers, kMaxBindings) - 1;
  const uint64_t step = window_bytes(*target_);
  const uint64_t wanted = (slot.end - slot.begin + step - 1) / step;
  TORCH_CHECK_NOT_IMPLEMENTED(
      wanted == 1 || num_bindings_ + wanted <= most, op_, "(): a tensor of ", buffer.size,
      " bytes does not fit into the storage bindings of target '", target.name, "', which are ",
      target.max_storage_buffers, " of ", target.max_storage_binding_size,
      " bytes for all tensors of a kernel");
  for (uint64_t at = slot.begin; at < slot.end; at += step) {
    bindings_[num_bindings_++] = {&buffer, at, std::min(step, slot.end - at)};
  }
}

void BindingList::require_one_binding(uint32_t slot) const {
  const uint32_t end = slot + 1 < num_slots_ ? slots_[slot + 1].binding : num_bindings_;
  TORCH_CHECK_NOT_IMPLEMENTED(end == slots_[slot].binding + 1, op_,
                              "(): a tensor is larger than a storage binding of target '",
                              target_->name, "' (", target_->max_storage_binding_size, " bytes)");
}

SlotWindows BindingList::windows() const {
  if (num_bindings_ == num_slots_) {
    return {};
  }
  SlotWindows windows{uint32_t{1} << num_bindings_, window_bytes(*target_)};
  for (uint32_t slot = 0; slot < num_slots_; ++slot) {
    windows.firsts |= uint32_t{1} << slots_[slot].binding;
  }
  return windows;
}

} // namespace torch_webgpu
