// Launching reduction kernels on a TensorIterator.
#pragma once

#include <ATen/TensorIterator.h>
#include <c10/core/Scalar.h>

#include "ops/reduce/reduce_table.h"

namespace torch_webgpu {

/// Whether `op` has a kernel for the iterator's dtypes; otherwise the caller falls back.
bool can_reduce(const at::TensorIteratorBase& iter, ReduceOp op);

/// Runs `op` on an iterator that ATen's make_reduction built: one or two outputs, one input (four
/// for rows that say so), and a stride of 0 in the outputs where a dimension is reduced.
void reduce(at::TensorIteratorBase& iter, ReduceOp op, c10::ArrayRef<c10::Scalar> scalars = {});

} // namespace torch_webgpu
