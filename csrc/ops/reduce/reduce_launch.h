// The dispatches of one reduction, as far as its operands fit the adapter's storage bindings.
#pragma once

#include <ATen/TensorIterator.h>
#include <c10/core/Scalar.h>

#include "ops/reduce/reduce_source.h"

namespace torch_webgpu {

enum class ReduceOutcome : uint8_t {
  kDone,
  kSplit, // nothing was dispatched: an operand is too large, but a kept dimension can be split
  kCopy,  // nothing was dispatched: the operands must be copied to dense tensors first
};

/// Runs `op` on the iterator if its operands can be bound; see reduce(). The iterator has results.
/// Raises NotImplementedError if nothing would help.
ReduceOutcome launch_reduction(at::TensorIteratorBase& iter, ReduceOp op,
                               c10::ArrayRef<c10::Scalar> scalars);

} // namespace torch_webgpu
