#include "launch/operand_launch.h"

#include <algorithm>

namespace torch_webgpu {

void OperandLaunch::put_windowed(uint32_t k, DType dtype, const Range& range) {
  operands_[k].present = true;
  operands_[k].dtype = dtype;
  present_ |= 1u << k;
  windowed_ |= 1u << k;
  ranges_[k] = range;
}

// The bytes that all operands in the buffer of operand `k` touch, because they share its slot.
Extent OperandLaunch::shared_extent(uint32_t k) const {
  Extent shared = ranges_[k].extent;
  for (uint32_t other = 0; other < kMaxOperands; ++other) {
    if (is_windowed(other) && ranges_[other].buffer == ranges_[k].buffer) {
      shared.begin = std::min(shared.begin, ranges_[other].extent.begin);
      shared.end = std::max(shared.end, ranges_[other].extent.end);
    }
  }
  return shared;
}

bool OperandLaunch::fit_one_binding_each() const {
  for (uint32_t k = 0; k < kMaxOperands; ++k) {
    if (is_windowed(k) && !BindingList::fits_one(*ranges_[k].buffer, shared_extent(k), target())) {
      return false;
    }
  }
  return true;
}

bool OperandLaunch::fit_one_binding_apart() const {
  for (uint32_t k = 0; k < kMaxOperands; ++k) {
    if (is_windowed(k) && ranges_[k].extent.bytes() > BindingList::safe_reach(target())) {
      return false;
    }
  }
  return true;
}

bool OperandLaunch::shares_large_buffer(uint32_t k) const {
  for (uint32_t other = 0; other < kMaxOperands; ++other) {
    if (other != k && is_windowed(k) && is_windowed(other) &&
        ranges_[other].buffer == ranges_[k].buffer) {
      return true;
    }
  }
  return false;
}

void OperandLaunch::place_windowed() {
  for (uint32_t k = 0; k < kMaxOperands; ++k) {
    if (!is_windowed(k)) {
      continue;
    }
    const Range& range = ranges_[k];
    const uint32_t slot = bindings_.add(*range.buffer, info(dtype(k)).bytes, shared_extent(k));
    if ((one_binding_ >> k & 1) != 0) {
      bindings_.require_one_binding(slot);
    }
    place(k, dtype(k), slot, range.start - bindings_.base(slot));
  }
}

} // namespace torch_webgpu
