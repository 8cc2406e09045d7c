// The dispatches of one reduction, as far as kernels can count its elements and bind its operands.
#pragma once

#include <ATen/TensorIterator.h>
#include <c10/core/Scalar.h>

#include "ops/reduce/reduce_table.h"

namespace torch_webgpu {

enum class ReduceOutcome : uint8_t {
  kDone,
  kSplit, // nothing was dispatched: the results must be computed in two parts
  kCopy,  // nothing was dispatched: the operands must be copied to dense tensors first
};

/// Runs `op` on the iterator, or says what is to be done first; see reduce(). The iterator has
/// results.
ReduceOutcome launch_reduction(const at::TensorIteratorBase& iter, ReduceOp op,
                               c10::ArrayRef<c10::Scalar> scalars);

} // namespace torch_webgpu
