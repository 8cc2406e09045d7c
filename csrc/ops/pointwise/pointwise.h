// Launching pointwise kernels on a TensorIterator.
#pragma once

#include <ATen/TensorIterator.h>
#include <c10/core/Scalar.h>

#include "launch/dtypes.h"
#include "ops/pointwise/pointwise_source.h"

namespace torch_webgpu {

/// The types a launch uses where they are not the iterator's own.
struct PointwiseTypes {
  DType compute;
  std::array<DType, 1 + kMaxPointwiseInputs> dtypes; // output first
};

/// Types from the iterator: computed in its common dtype (or, where it has none, the first
/// input's). Nothing if a dtype is not native or the row has no expression for it; then the caller
/// falls back.
std::optional<PointwiseTypes> pointwise_types(const at::TensorIteratorBase& iter, PointwiseOp op);

/// Runs `op` on an iterator of one output. Inputs that are CPU scalars are passed with the
/// parameters. Operands larger than a storage binding are split.
void pointwise(at::TensorIteratorBase& iter, PointwiseOp op, const PointwiseTypes& types,
               c10::ArrayRef<c10::Scalar> scalars = {});

/// The same for tensors of one dtype. An undefined `out` is allocated; a defined one is not
/// resized. Returns false without running anything if the dtype has no kernel.
bool run_pointwise(PointwiseOp op, at::Tensor& out, at::ArrayRef<at::Tensor> inputs,
                   c10::ArrayRef<c10::Scalar> scalars = {});

} // namespace torch_webgpu
