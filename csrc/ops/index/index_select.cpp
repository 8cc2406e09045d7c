// index_select, index_add and index_reduce: one index vector along one dimension.
#include <ATen/Context.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/OpMathType.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_reduce.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scatter_reduce.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/registration.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "ops/index/index_move.h"
#include "structured_ops.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using Strides = c10::SmallVector<int64_t, 8>;

// Strides of an index vector in a move over `rank` dimensions.
Strides along(const Tensor& index, int64_t dim, int64_t rank) {
  Strides strides(rank, 0);
  strides[dim] = index.dim() == 0 ? 1 : index.stride(0);
  return strides;
}

Strides strides_but(const Tensor& tensor, int64_t dim) {
  Strides strides(tensor.strides().begin(), tensor.strides().end());
  strides[dim] = 0;
  return strides;
}

// For a result without elements: moves nothing, and checks that the indices are in range, as the
// CPU does.
void check_range(const char* name, int64_t dim, const Tensor& index, int64_t size) {
  const Tensor scratch = empty_webgpu({index.numel()}, index.options().dtype(at::kFloat));
  IndexMove move(name, StoreMode::kFill);
  move.message = kOutOfSelf;
  move.dim = dim;
  move.sizes.assign(scratch.sizes().begin(), scratch.sizes().end());
  move.out = move_target(scratch, raw_dtype(at::kFloat), scratch.strides());
  move.indices.push_back(move_index(index, along(index, 0, 1), size));
  move.indices[0].out_stride = 0;
  run_index_move(std::move(move));
}

Tensor& index_select_out(const Tensor& self, int64_t dim, const Tensor& index, Tensor& result) {
  check_same_device("index_select", {{self, "self"}, {index, "index"}, {result, "out"}});
  dim = at::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK_INDEX(index.dim() <= 1, "index_select(): Index is supposed to be a vector");
  TORCH_CHECK(!(self.dim() == 0 && index.numel() != 1),
              "index_select(): Index to scalar can have only 1 value, got ", index.numel(),
              " value(s)");
  TORCH_CHECK(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
              "index_select(): Expected dtype int32 or int64 for index");
  TORCH_CHECK(self.scalar_type() == result.scalar_type(),
              "index_select(): self and result must have the same scalar type");
  at::assert_no_internal_overlap(result);
  at::assert_no_overlap(result, self);
  at::assert_no_overlap(result, index);
  auto size = self.sizes().vec();
  if (self.dim() > 0) {
    size[dim] = index.numel();
  }
  at::native::resize_output(result, size);

  const Tensor in = at_least_1d(self);
  const Tensor out = at_least_1d(result);
  if (out.numel() == 0) {
    check_range("index_select", dim, index, in.size(dim));
    return result;
  }
  const DType bits = raw_dtype(self.scalar_type());
  IndexMove move("index_select");
  move.message = kOutOfSelf;
  move.dim = dim;
  move.sizes.assign(out.sizes().begin(), out.sizes().end());
  move.out = move_target(out, bits, out.strides());
  move.in = move_operand(in, bits, strides_but(in, dim));
  move.indices.push_back(move_index(index, along(index, dim, out.dim()), in.size(dim)));
  move.indices[0].in_stride = in.stride(dim);
  run_index_move(std::move(move));
  return result;
}

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  Tensor result = empty_webgpu({0}, self.options());
  index_select_out(self, dim, index, result);
  return result;
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("index_select", TORCH_FN(index_select));
  m.impl("index_select.out", TORCH_FN(index_select_out));
}

// The identity of the operation: a combination with it changes nothing.
c10::Scalar neutral_element(StoreMode mode, at::ScalarType type) {
  if (mode == StoreMode::kAdd) {
    return 0;
  }
  if (mode == StoreMode::kMultiply) {
    return 1;
  }
  const bool lowest = mode == StoreMode::kMaximum;
  if (at::isFloatingType(type)) {
    const double infinity = std::numeric_limits<double>::infinity();
    return lowest ? -infinity : infinity;
  }
  return AT_DISPATCH_INTEGRAL_TYPES_AND(at::kBool, type, "neutral_element", [&]() -> c10::Scalar {
    return lowest ? std::numeric_limits<scalar_t>::lowest() : std::numeric_limits<scalar_t>::max();
  });
}

// For integer and bool tensors: alpha as a number of their dtype, so that the product has that
// dtype. A floating point alpha would promote it.
c10::Scalar as_integer(const c10::Scalar& alpha, at::ScalarType type) {
  if (type == at::kBool) {
    return alpha.to<bool>();
  }
  return at::isIntegralType(type, /*includeBool=*/false) ? c10::Scalar(alpha.to<int64_t>()) : alpha;
}

StoreMode mode_of(std::string_view reduce) {
  return reduce == "prod"   ? StoreMode::kMultiply
         : reduce == "amax" ? StoreMode::kMaximum
         : reduce == "amin" ? StoreMode::kMinimum
                            : StoreMode::kAdd; // for a mean; the caller divides the sums
}

} // namespace

void index_combine(const char* name, StoreMode mode, const Tensor& result, int64_t dim,
                   const Tensor& index, const Tensor& source) {
  const Tensor out = at_least_1d(result);
  const Tensor in = at_least_1d(source);
  const DType dtype = *native_dtype(result.scalar_type());
  IndexMove move(name, mode);
  move.message = kOutOfSelf;
  move.dim = dim;
  move.sizes.assign(in.sizes().begin(), in.sizes().end());
  move.out = move_target(out, dtype, strides_but(out, dim));
  move.in = move_operand(in, dtype, in.strides());
  move.indices.push_back(move_index(index, along(index, dim, in.dim()), out.size(dim)));
  move.indices[0].out_stride = out.stride(dim);
  if (!combines_atomically(mode, dtype) || at::globalContext().deterministicAlgorithms()) {
    move.serial_dims = uint64_t{1} << dim;
  }
  run_index_move(std::move(move));
}

void structured_index_add_out::impl(const Tensor& self, int64_t dim, const Tensor& index,
                                    const Tensor& source, const at::Scalar& alpha,
                                    const Tensor& out) {
  if (!native_dtype(self.scalar_type())) {
    note_fallback("aten::index_add", self.scalar_type());
    out.copy_(at::index_add(self.cpu(), dim, index.cpu(), source.cpu(), alpha));
    return;
  }
  if (!out.is_same(self)) {
    out.copy_(self);
  }
  check_fits(alpha, at::toOpMathType(self.scalar_type()));
  // The CPU leaves an empty result of several dimensions as it is, whatever the indices are.
  if (out.dim() > 1 && out.numel() == 0) {
    return;
  }
  const c10::Scalar factor = as_integer(alpha, self.scalar_type());
  const bool scales = !factor.equal(1);
  index_combine("index_add", StoreMode::kAdd, out, dim, index,
                scales ? source.mul(factor) : source);
}

Tensor index_reduce_unwarned(const Tensor& out, int64_t dim, const Tensor& index,
                             const Tensor& source, std::string_view reduce, bool include_self) {
  if (!native_dtype(out.scalar_type())) {
    note_fallback("aten::scatter_reduce", out.scalar_type());
    at::DimVector along(source.dim(), 1); // of the CPU's kernels this one does not warn
    along[c10::maybe_wrap_dim(dim, source.dim())] = index.numel();
    const Tensor places = index.cpu().to(at::kLong).view(along).expand(source.sizes());
    out.copy_(at::scatter_reduce(out.cpu(), dim, places, source.cpu(), reduce, include_self));
    return out;
  }
  if (source.numel() == 0) {
    check_range("index_reduce", dim, index, at_least_1d(out).size(dim));
    return out;
  }
  const StoreMode mode = mode_of(reduce);
  if (!include_self) {
    Tensor(out).index_fill_(dim, index.to(at::kLong), neutral_element(mode, out.scalar_type()));
  }
  index_combine("index_reduce", mode, out, dim, index, source);
  if (reduce == "mean") {
    Tensor counts = include_self ? at::ones_like(out) : at::zeros_like(out);
    counts.index_add_(dim, index, at::ones_like(source));
    counts.masked_fill_(counts.eq(0), 1);
    const bool floors = !at::isFloatingType(out.scalar_type()) && !out.is_complex();
    floors ? Tensor(out).div_(counts, "floor") : Tensor(out).div_(counts);
  }
  return out;
}

void structured_index_reduce_out::impl(const Tensor& self, int64_t dim, const Tensor& index,
                                       const Tensor& source, std::string_view reduce,
                                       bool include_self, const Tensor& out) {
  if (!native_dtype(out.scalar_type())) {
    note_fallback("aten::index_reduce", out.scalar_type());
    out.copy_(at::index_reduce(self.cpu(), dim, index.cpu(), source.cpu(), reduce, include_self));
    return;
  }
  // ATen leaves the warning to the kernels.
  TORCH_WARN_ONCE("index_reduce() is in beta and the API may change at any time.");
  if (!out.is_same(self)) {
    out.copy_(self);
  }
  index_reduce_unwarned(out, dim, index, source, reduce, include_self);
}

} // namespace torch_webgpu
