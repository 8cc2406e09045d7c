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

uint32_t BindingList::add(const Buffer& buffer, uint32_t element_bytes, Extent extent) {
  const ShaderTarget& target = target_with(buffer);
  for (uint32_t slot = 0; slot < num_slots_; ++slot) {
    if (bindings_[slots_[slot].binding].buffer == &buffer) {
      TORCH_CHECK_NOT_IMPLEMENTED(
          slots_[slot].bound.begin <= extent.begin && extent.end <= slots_[slot].bound.end, op_,
          "(): two tensors of one storage, which is larger than a storage binding, are too far "
          "apart to be bound together");
      return slot;
    }
  }
  TORCH_INTERNAL_ASSERT(num_bindings_ < kMaxBindings, op_, "(): more operands than bindings");
  if (buffer.size <= target.max_storage_binding_size) {
    slots_[num_slots_] = {{0, buffer.size}, num_bindings_};
    bindings_[num_bindings_++] = {&buffer, 0, 0};
  } else {
    add_windows(buffer, extent);
  }
  const uint64_t bytes = slots_[num_slots_].bound.bytes();
  TORCH_CHECK_NOT_IMPLEMENTED(bytes >> std::countr_zero(element_bytes) <= kMaxElements, op_,
                              "(): a tensor of more than 2^32 elements");
  return num_slots_++;
}

// Binds the windows that hold those bytes of the buffer, as slot number num_slots_.
void BindingList::add_windows(const Buffer& buffer, Extent extent) {
  const ShaderTarget& target = *target_;
  const Extent bound = bound_part(buffer, extent);
  slots_[num_slots_] = {bound, num_bindings_};
  // Kernels that check indices bind one buffer more, the error words.
  const uint64_t most = std::min(target.max_storage_buffers, kMaxBindings) - 1;
  const uint64_t step = window_bytes(*target_);
  const uint64_t wanted = (bound.bytes() + step - 1) / step;
  TORCH_CHECK_NOT_IMPLEMENTED(
      wanted == 1 || num_bindings_ + wanted <= most, op_, "(): a tensor of ", buffer.size,
      " bytes does not fit into the storage bindings of target '", target.name, "', which are ",
      target.max_storage_buffers, " of ", target.max_storage_binding_size,
      " bytes for all tensors of a kernel");
  for (uint64_t at = bound.begin; at < bound.end; at += step) {
    bindings_[num_bindings_++] = {&buffer, at, std::min(step, bound.end - at)};
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
