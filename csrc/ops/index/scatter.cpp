// gather and the scatter family: one index per element, along one dimension.
#include <ATen/Context.h>
#include <ATen/native/ReductionType.h>
#include <ATen/native/TensorAdvancedIndexing.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scatter_add.h>
#include <ATen/ops/scatter_reduce.h>

#include "backend/fallback.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "ops/index/index_move.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using at::native::ReductionType;

// The tensor's strides for a walk over the index's shape. Along `dim` the index gives the position,
// so the stride there is 0.
c10::SmallVector<int64_t, 8> strides_but(const Tensor& tensor, int64_t dim) {
  c10::SmallVector<int64_t, 8> strides(tensor.strides().begin(), tensor.strides().end());
  strides[dim] = 0;
  return strides;
}

void gather(const Tensor& result, const Tensor& self, int64_t dim, const Tensor& index) {
  const Tensor in = at_least_1d(self);
  const Tensor out = at_least_1d(result);
  const Tensor at = at_least_1d(index);
  const DType bits = raw_dtype(self.scalar_type());
  IndexMove move{"gather"};
  move.error = ErrorKind::kRuntime;
  move.dim = dim;
  move.sizes.assign(at.sizes().begin(), at.sizes().end());
  move.out = move_target(out, bits, out.strides());
  move.in = move_operand(in, bits, strides_but(in, dim));
  move.indices.push_back(move_index(at, at.strides(), in.size(dim)));
  move.indices[0].in_stride = in.stride(dim);
  run_index_move(std::move(move));
}

// `src` is not used by kFill.
void scatter_move(const char* name, StoreMode mode, const Tensor& self, int64_t dim,
                  const Tensor& index, const Tensor& src, std::array<uint32_t, 4> value = {}) {
  const Tensor out = at_least_1d(self);
  const Tensor at = at_least_1d(index);
  const bool moves_bits = mode <= StoreMode::kFill;
  const DType dtype =
      moves_bits ? raw_dtype(self.scalar_type()) : *native_dtype(self.scalar_type());
  IndexMove move{name, mode};
  move.error = ErrorKind::kRuntime;
  move.dim = dim;
  move.sizes.assign(at.sizes().begin(), at.sizes().end());
  move.out = move_target(out, dtype, strides_but(out, dim));
  if (mode != StoreMode::kFill) {
    const Tensor in = at_least_1d(src);
    move.in = move_operand(in, dtype, in.strides());
  }
  move.indices.push_back(move_index(at, at.strides(), out.size(dim)));
  move.indices[0].out_stride = out.stride(dim);
  move.value = value;
  if (!combines_atomically(mode, dtype) || at::globalContext().deterministicAlgorithms()) {
    move.serial_dims = uint64_t{1} << dim;
  }
  run_index_move(std::move(move));
}

void scatter(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  scatter_move("scatter", StoreMode::kCopy, self, dim, index, src);
}

void scatter_fill(const Tensor& self, int64_t dim, const Tensor& index, const at::Scalar& value) {
  scatter_move("scatter", StoreMode::kFill, self, dim, index, {},
               element_bits(value, self.scalar_type()));
}

void scatter_add(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  if (native_dtype(self.scalar_type())) {
    scatter_move("scatter_add", StoreMode::kAdd, self, dim, index, src);
    return;
  }
  note_fallback("aten::scatter_add", self.scalar_type());
  self.copy_(at::scatter_add(self.cpu(), dim, index.cpu(), src.cpu()));
}

StoreMode mode_of(ReductionType reduce) {
  switch (reduce) {
  case ReductionType::PROD:
    return StoreMode::kMultiply;
  case ReductionType::MIN:
    return StoreMode::kMinimum;
  case ReductionType::MAX:
    return StoreMode::kMaximum;
  default:
    return StoreMode::kAdd; // ATen divides the sums for a mean
  }
}

// The name of the reduction in at::scatter_reduce. A mean is computed as a sum; ATen divides it.
const char* name_of(ReductionType reduce) {
  switch (reduce) {
  case ReductionType::PROD:
    return "prod";
  case ReductionType::MIN:
    return "amin";
  case ReductionType::MAX:
    return "amax";
  default:
    return "sum";
  }
}

void scatter_reduce_two(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                        const ReductionType& reduce) {
  if (native_dtype(self.scalar_type())) {
    scatter_move("scatter_reduce", mode_of(reduce), self, dim, index, src);
    return;
  }
  note_fallback("aten::scatter_reduce", self.scalar_type());
  self.copy_(at::scatter_reduce(self.cpu(), dim, index.cpu(), src.cpu(), name_of(reduce)));
}

void scatter_reduce(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                    const ReductionType& reduce) {
  scatter_reduce_two(self, dim, index, src, reduce);
}

void scatter_scalar_reduce(const Tensor& self, int64_t dim, const Tensor& index,
                           const at::Scalar& value, const ReductionType& reduce) {
  const Tensor src = at::full({}, value, self.options()).expand(index.sizes());
  scatter_reduce_two(self, dim, index, src, reduce);
}

} // namespace
} // namespace torch_webgpu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(gather_stub, &torch_webgpu::gather)
REGISTER_PRIVATEUSE1_DISPATCH(scatter_stub, &torch_webgpu::scatter)
REGISTER_PRIVATEUSE1_DISPATCH(scatter_fill_stub, &torch_webgpu::scatter_fill)
REGISTER_PRIVATEUSE1_DISPATCH(scatter_add_stub, &torch_webgpu::scatter_add)
REGISTER_PRIVATEUSE1_DISPATCH(scatter_reduce_stub, &torch_webgpu::scatter_reduce)
REGISTER_PRIVATEUSE1_DISPATCH(scatter_reduce_two_stub, &torch_webgpu::scatter_reduce_two)
REGISTER_PRIVATEUSE1_DISPATCH(scatter_scalar_reduce_stub, &torch_webgpu::scatter_scalar_reduce)
} // namespace at::native
