// Advanced indexing through ATen's iterators: index, index_put, take, put, index_copy, index_fill,
// masked_fill and flip.
#include <ATen/TensorIterator.h>
#include <ATen/native/IndexKernel.h>
#include <ATen/ops/scalar_tensor.h>

#include "launch/common.h"
#include "launch/dtypes.h"
#include "ops/index/index_move.h"
#include "ops/pointwise/pointwise.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using at::TensorIterator;
using at::TensorIteratorBase;

IndexMove move_over(const char* name, const TensorIteratorBase& iter) {
  IndexMove move{name};
  move.sizes.assign(iter.shape().begin(), iter.shape().end());
  return move;
}

MoveIndex iterator_index(const TensorIteratorBase& iter, int operand, int64_t size) {
  return {move_operand(iter, operand, *native_dtype(iter.dtype(operand))), size, 0, 0};
}

// Adds the index tensors of an iterator, which are its operands from 2 on. `stride` says whether
// they index `out` or `in`.
void add_indices(IndexMove& move, const TensorIteratorBase& iter, at::IntArrayRef sizes,
                 at::IntArrayRef byte_strides, int64_t MoveIndex::*stride) {
  const auto element = static_cast<int64_t>(iter.element_size(0));
  for (size_t k = 0; k < sizes.size(); ++k) {
    move.indices.push_back(iterator_index(iter, static_cast<int>(2 + k), sizes[k]));
    move.indices.back().*stride = byte_strides[k] / element;
  }
  move.wrap_negative = true;
}

// Calls launch(iterator, sizes, strides) with at most kMaxMoveIndices index tensors.
template <typename Iterator, typename Launch>
void with_few_indices(Iterator& iter, at::IntArrayRef sizes, at::IntArrayRef byte_strides,
                      Launch&& launch) {
  if (sizes.size() <= kMaxMoveIndices) {
    launch(iter, sizes, byte_strides);
    return;
  }
  const auto element = static_cast<int64_t>(iter.element_size(0));
  IndexList list;
  for (size_t k = 0; k < sizes.size(); ++k) {
    list.tensors.push_back(iter.tensor(static_cast<int>(2 + k)));
    list.sizes.push_back(sizes[k]);
    list.strides.push_back(byte_strides[k] / element);
  }
  list.fold();
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false).resize_outputs(false);
  config.add_output(iter.tensor(0)).add_const_input(iter.tensor(1));
  for (size_t k = 0; k < list.tensors.size(); ++k) {
    config.add_const_input(list.tensors[k]);
    list.strides[k] *= element;
  }
  auto folded = config.build();
  launch(folded, list.sizes, list.strides);
}

void index(TensorIteratorBase& all, at::IntArrayRef all_sizes, at::IntArrayRef all_strides) {
  with_few_indices(all, all_sizes, all_strides, [](auto& iter, auto sizes, auto strides) {
    IndexMove move = move_over("index", iter);
    const DType bits = raw_dtype(iter.dtype(0));
    move.out = move_target(iter, 0, bits);
    move.in = move_operand(iter, 1, bits);
    add_indices(move, iter, sizes, strides, &MoveIndex::in_stride);
    run_index_move(std::move(move));
  });
}

// From torch 2.12 on, accumulation and determinism come through index_put_with_sort_stub instead,
// see index_put.cpp.
void index_put(TensorIterator& all, at::IntArrayRef all_sizes, at::IntArrayRef all_strides,
               bool accumulate) {
  with_few_indices(all, all_sizes, all_strides, [&](auto& iter, auto sizes, auto strides) {
    IndexMove move = move_over("index_put_", iter);
    move.mode = accumulate ? StoreMode::kAdd : StoreMode::kCopy;
    const DType dtype = accumulate ? *native_dtype(iter.dtype(0)) : raw_dtype(iter.dtype(0));
    move.out = move_target(iter, 0, dtype);
    move.in = move_operand(iter, 1, dtype);
    add_indices(move, iter, sizes, strides, &MoveIndex::out_stride);
    keep_order_if_deterministic(move);
    run_index_move(std::move(move));
  });
}

constexpr char kOutOfTensor[] =
    "out of range: tried to access index {index} on a tensor of {size} elements.";

// Iterator: output, index. The index counts elements of the flattened input.
void take(TensorIterator& iter, const at::TensorBase& input) {
  const Tensor in = Tensor(input).contiguous();
  IndexMove move = move_over("take", iter);
  move.message = kOutOfTensor;
  const DType bits = raw_dtype(iter.dtype(0));
  const c10::SmallVector<int64_t, 8> still(iter.ndim(), 0);
  move.out = move_target(iter, 0, bits);
  move.in = move_operand(in, bits, still);
  move.indices.push_back(iterator_index(iter, 1, in.numel()));
  move.indices[0].in_stride = 1;
  move.wrap_negative = true;
  run_index_move(std::move(move));
}

// Iterator without output: source, index. put_ in index_put.cpp handles sums in dtypes
// that have no kernels, so these do not get here.
void put(TensorIterator& iter, const at::TensorBase& self, bool accumulate) {
  const Tensor target(self);
  const Tensor out = target.contiguous();
  const DType dtype =
      accumulate ? *native_dtype(target.scalar_type()) : raw_dtype(target.scalar_type());
  const c10::SmallVector<int64_t, 8> still(iter.ndim(), 0);
  IndexMove move = move_over("put_", iter);
  move.message = kOutOfTensor;
  move.mode = accumulate ? StoreMode::kAdd : StoreMode::kCopy;
  move.out = move_target(out, dtype, still);
  move.in = move_operand(iter, 0, dtype);
  move.indices.push_back(iterator_index(iter, 1, out.numel()));
  move.indices[0].out_stride = 1;
  move.wrap_negative = true;
  keep_order_if_deterministic(move);
  run_index_move(std::move(move));
  if (!out.is_same(target)) {
    target.copy_(out);
  }
}

// Iterator: output, index, source.
void index_copy(TensorIterator& iter, int64_t dim, int64_t size, int64_t stride) {
  IndexMove move = move_over("index_copy_", iter);
  move.dim = dim;
  const DType bits = raw_dtype(iter.dtype(0));
  move.out = move_target(iter, 0, bits);
  move.in = move_operand(iter, 2, bits);
  move.indices.push_back(iterator_index(iter, 1, size));
  move.indices[0].out_stride = stride;
  keep_order_if_deterministic(move);
  run_index_move(std::move(move));
}

// Iterator: output, index.
void index_fill(TensorIterator& iter, int64_t dim, int64_t size, int64_t stride,
                const at::Scalar& value) {
  IndexMove move = move_over("index_fill_", iter);
  move.dim = dim;
  move.mode = StoreMode::kFill;
  move.out = move_target(iter, 0, raw_dtype(iter.dtype(0)));
  move.value = element_bits(value, iter.dtype(0));
  move.indices.push_back(iterator_index(iter, 1, size));
  move.indices[0].out_stride = stride;
  move.wrap_negative = true;
  run_index_move(std::move(move));
}

// ATen's iterator has only the mask as input. The kernel also reads the elements that stay as they
// are.
void masked_fill(TensorIterator& iter, const at::Scalar& value) {
  const Tensor& self = iter.tensor(0);
  const Tensor& mask = iter.tensor(1);
  const auto dtype = native_dtype(self.scalar_type());
  check_fits(value, self.scalar_type());
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false).resize_outputs(false);
  config.add_output(self);
  if (dtype) {
    auto full = config.add_const_input(self).add_const_input(mask).build();
    pointwise(full, PointwiseOp::masked_fill, {*dtype, {*dtype, *dtype, DType::kBool}}, value);
    return;
  }
  const DType bits = raw_dtype(self.scalar_type());
  const Tensor filling = at::scalar_tensor(value, self.scalar_type()).to(self.device());
  auto full = config.add_const_input(mask).add_const_input(filling).add_const_input(self).build();
  pointwise(full, PointwiseOp::where, {bits, {bits, DType::kBool, bits, bits}});
}

// ATen has already negated the strides of the flipped dimensions.
void flip(TensorIterator& iter, bool) {
  const DType bits = raw_dtype(iter.dtype(0));
  pointwise(iter, PointwiseOp::copy, {bits, {bits, bits}});
}

} // namespace
} // namespace torch_webgpu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(index_stub, &torch_webgpu::index)
REGISTER_PRIVATEUSE1_DISPATCH(index_put_stub, &torch_webgpu::index_put)
REGISTER_PRIVATEUSE1_DISPATCH(take_stub, &torch_webgpu::take)
REGISTER_PRIVATEUSE1_DISPATCH(put_stub, &torch_webgpu::put)
REGISTER_PRIVATEUSE1_DISPATCH(index_copy_stub, &torch_webgpu::index_copy)
REGISTER_PRIVATEUSE1_DISPATCH(index_fill_stub, &torch_webgpu::index_fill)
REGISTER_PRIVATEUSE1_DISPATCH(masked_fill_stub, &torch_webgpu::masked_fill)
REGISTER_PRIVATEUSE1_DISPATCH(flip_stub, &torch_webgpu::flip)
} // namespace at::native
