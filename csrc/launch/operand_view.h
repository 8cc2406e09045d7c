// A TensorIterator's operand as a tensor again, to copy it or to build another iterator.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>

namespace torch_webgpu {

/// The elements that the iterator (maybe a part of one, after splits) reads or writes, with its
/// dimensions in row-major order; dimensions of stride 0 have size 1. Raises for negative strides,
/// which tensors do not have.
at::Tensor operand_view(const at::TensorIteratorBase& iter, int operand);

} // namespace torch_webgpu
