// sort, topk, and what follows from sorted rows: kthvalue, median, mode.
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/native/Sorting.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/registration.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "ops/sort/sort_launch.h"
#include "structured_ops.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

// An output for a kernel that writes contiguous rows: `target` itself if its rows are contiguous,
// else a new tensor that deliver() copies to it.
class RowsOut {
public:
  RowsOut(const Tensor& target, int64_t dim)
      : rows_(target.movedim(dim, -1)),
        written_(rows_.is_contiguous() ? rows_ : empty_webgpu(rows_.sizes(), rows_.options())) {}

  const Tensor& written() const { return written_; }
  void deliver() const {
    if (!written_.is_same(rows_)) {
      rows_.copy_(written_);
    }
  }

private:
  Tensor rows_;
  Tensor written_;
};

void sort_along(const char* name, const Tensor& self, int64_t k, int64_t dim, bool descending,
                const Tensor& values, const Tensor& indices) {
  const RowsOut values_out(values, dim);
  const RowsOut indices_out(indices, dim);
  Tensor in = self.movedim(dim, -1).contiguous();
  if (same_buffer(in, values_out.written()) || same_buffer(in, indices_out.written())) {
    in = in.clone();
  }
  sort_rows(name, in, k, descending, values_out.written(), indices_out.written());
  values_out.deliver();
  indices_out.deliver();
}

bool sortable(at::ScalarType type) { return native_dtype(type) && !c10::isComplexType(type); }

void sort(const at::TensorBase& self_base, const at::TensorBase& values_base,
          const at::TensorBase& indices_base, int64_t dim, bool descending, bool stable) {
  const Tensor self(self_base);
  const Tensor values(values_base);
  const Tensor indices(indices_base);
  if (!sortable(self.scalar_type())) {
    note_fallback("aten::sort", self.scalar_type());
    const auto sorted = at::sort(self.cpu(), stable, dim, descending);
    values.copy_(std::get<0>(sorted));
    indices.copy_(std::get<1>(sorted));
    return;
  }
  if (self.dim() == 0) {
    values.copy_(self);
    indices.zero_();
    return;
  }
  sort_along("sort", self, self.size(dim), dim, descending, values, indices);
}

// Rows of at least one dimension, sorted upwards, and the dimension they lie along.
struct Sorted {
  Tensor values;
  Tensor indices;
  int64_t size;
};

// `op` is the operator that asks. Complex numbers have no order: sort's own error would not name
// it.
Sorted sort_upwards(const char* op, const Tensor& self, int64_t dim) {
  TORCH_CHECK_NOT_IMPLEMENTED(!self.is_complex(), '"', op, "\" not implemented for '",
                              self.scalar_type(), "'");
  const Tensor rows = at_least_1d(self);
  auto [values, indices] = at::sort(rows, /*stable=*/true, dim, /*descending=*/false);
  return {std::move(values), std::move(indices), rows.size(dim)};
}

// Writes the element at `position` of each row to the results. `position` has one index per row,
// and size 1 along the dimension.
void take_along(const Sorted& sorted, const Tensor& position, const Tensor& self, int64_t dim,
                bool keepdim, Tensor& values, Tensor& indices) {
  auto shaped = [&](const Tensor& taken) {
    if (self.dim() == 0) {
      return taken.squeeze(0);
    }
    return keepdim ? taken : taken.squeeze(dim);
  };
  write_out(shaped(sorted.values.gather(dim, position)), values);
  write_out(shaped(sorted.indices.gather(dim, position)), indices);
}

Tensor same_position(const Sorted& sorted, int64_t dim, int64_t position) {
  auto size = sorted.values.sizes().vec();
  size[dim] = 1;
  return at::full(size, position, sorted.indices.options());
}

void check_not_empty(const char* name, const Tensor& self, int64_t dim) {
  TORCH_CHECK_INDEX(self.dim() == 0 || self.size(dim) != 0, name, ": Expected reduction dim ", dim,
                    " to have non-zero size.");
}

std::tuple<Tensor&, Tensor&> kthvalue_out(const Tensor& self, int64_t k, int64_t dim, bool keepdim,
                                          Tensor& values, Tensor& indices) {
  check_same_device("kthvalue", {{self, "self"}, {values, "values"}, {indices, "indices"}});
  TORCH_CHECK(values.scalar_type() == self.scalar_type(),
              "output values must be of same type as input");
  TORCH_CHECK(indices.scalar_type() == at::kLong, "output indices must be of scalar type Long");
  at::assert_no_overlap(self, values);
  dim = at::maybe_wrap_dim(dim, self.dim());
  const int64_t size = self.dim() == 0 ? 1 : self.size(dim);
  check_not_empty("kthvalue()", self, dim);
  TORCH_CHECK(k >= 1 && k <= size, "kthvalue(): selected number k out of range for dimension ",
              dim);
  const Sorted sorted = sort_upwards("kthvalue", self, dim);
  take_along(sorted, same_position(sorted, dim, k - 1), self, dim, keepdim, values, indices);
  return {values, indices};
}

// The position of the median in a sorted row. NaNs are at its end. If there are any, the first of
// them is the median, or with `ignore_nan` none of them counts.
Tensor median_position(const Sorted& sorted, int64_t dim, bool ignore_nan) {
  if (!at::isFloatingType(sorted.values.scalar_type())) {
    return same_position(sorted, dim, (sorted.size - 1) / 2);
  }
  const Tensor nans = at::isnan(sorted.values).sum(dim, /*keepdim=*/true);
  if (ignore_nan) {
    return nans.neg().add(sorted.size - 1).clamp_min(0).div(2, "floor");
  }
  const Tensor first = nans.neg().add(sorted.size);
  return first.masked_fill(nans.eq(0), (sorted.size - 1) / 2);
}

std::tuple<Tensor&, Tensor&> median_along(const Tensor& self, int64_t dim, bool keepdim,
                                          Tensor& values, Tensor& indices, bool ignore_nan) {
  check_same_device("median", {{self, "self"}, {values, "values"}, {indices, "indices"}});
  at::checkScalarType("median", {indices, "indices", 1}, at::kLong);
  at::checkSameType("median", {values, "values", 0}, {self, "self", 2});
  dim = at::maybe_wrap_dim(dim, self.dim());
  check_not_empty("median()", self, dim);
  const Sorted sorted = sort_upwards("median", self, dim);
  take_along(sorted, median_position(sorted, dim, ignore_nan), self, dim, keepdim, values, indices);
  return {values, indices};
}

Tensor median_of_all(const Tensor& self, bool ignore_nan) {
  if (self.numel() == 0) {
    // Made in float32 and converted, because `full` takes no NaN for an integer type.
    return at::full({}, std::numeric_limits<float>::quiet_NaN(), self.options().dtype(at::kFloat))
        .to(self.scalar_type());
  }
  const Sorted sorted = sort_upwards("median", self.reshape({-1}), 0);
  return sorted.values.gather(0, median_position(sorted, 0, ignore_nan)).squeeze(0);
}

std::tuple<Tensor&, Tensor&> median_out(const Tensor& self, int64_t dim, bool keepdim,
                                        Tensor& values, Tensor& indices) {
  return median_along(self, dim, keepdim, values, indices, false);
}

std::tuple<Tensor&, Tensor&> nanmedian_out(const Tensor& self, int64_t dim, bool keepdim,
                                           Tensor& values, Tensor& indices) {
  return median_along(self, dim, keepdim, values, indices, true);
}

Tensor median(const Tensor& self) { return median_of_all(self, false); }
Tensor nanmedian(const Tensor& self) { return median_of_all(self, true); }

// The first of the longest runs of equal elements; its index is that of the run's last element. A
// NaN equals nothing, so that each is a run of its own, as on the CPU and with CUDA.
std::tuple<Tensor, Tensor> mode(const Tensor& self, int64_t dim, bool keepdim) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  Tensor values = empty_webgpu({0}, self.options());
  Tensor indices = empty_webgpu({0}, at::kLong, self.device());
  if (self.numel() == 0) {
    check_not_empty("mode()", self, dim);
    auto size = self.sizes().vec();
    size[dim] = 1;
    const Tensor shape = at::empty(size, self.options());
    const Tensor result = keepdim ? shape : shape.squeeze(dim);
    return {result, result.to(at::kLong)};
  }
  const Sorted sorted = sort_upwards("mode", self, dim);
  const Tensor rows = sorted.values.movedim(dim, -1);
  const Tensor position = at::arange(sorted.size, sorted.indices.options());
  // The start of each element's run: the greatest start of a run up to the element.
  Tensor start = at::zeros(rows.sizes(), sorted.indices.options());
  const Tensor starts_run =
      rows.narrow(-1, 1, sorted.size - 1).ne(rows.narrow(-1, 0, sorted.size - 1));
  start.narrow(-1, 1, sorted.size - 1)
      .copy_(starts_run.mul(position.narrow(0, 1, sorted.size - 1)));
  start = std::get<0>(start.cummax(-1));
  // The distance from the start of the run is greatest at the end of the longest run.
  const Tensor last = position.sub(start).argmax(-1, /*keepdim=*/true).movedim(-1, dim);
  take_along(sorted, last, self, dim, keepdim, values, indices);
  return {values, indices};
}

// ATen's own, composed of mode and copies, raises for every device but CPU and CUDA.
std::tuple<Tensor&, Tensor&> mode_out(const Tensor& self, int64_t dim, bool keepdim, Tensor& values,
                                      Tensor& indices) {
  check_same_device("mode", {{self, "self"}, {values, "values"}, {indices, "indices"}});
  TORCH_CHECK(values.scalar_type() == self.scalar_type(), "expected scalar type '",
              self.scalar_type(), "' but got '", values.scalar_type(), "' for values output");
  TORCH_CHECK(indices.scalar_type() == at::kLong, "expected scalar type '", at::kLong,
              "' but got '", indices.scalar_type(), "' for indices output");
  const auto [value, index] = mode(self, dim, keepdim);
  write_out(value, values);
  write_out(index, indices);
  return {values, indices};
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("kthvalue.values", TORCH_FN(kthvalue_out));
  m.impl("median", TORCH_FN(median));
  m.impl("median.dim_values", TORCH_FN(median_out));
  m.impl("nanmedian", TORCH_FN(nanmedian));
  m.impl("nanmedian.dim_values", TORCH_FN(nanmedian_out));
  m.impl("mode", TORCH_FN(mode));
  m.impl("mode.values", TORCH_FN(mode_out));
}

} // namespace

void structured_topk_out::impl(const Tensor& self, int64_t k, int64_t dim, bool largest,
                               bool sorted, const Tensor& values, const Tensor& indices) {
  if (!sortable(self.scalar_type())) {
    note_fallback("aten::topk", self.scalar_type());
    const auto best = at::topk(self.cpu(), k, dim, largest, sorted);
    values.copy_(std::get<0>(best));
    indices.copy_(std::get<1>(best));
    return;
  }
  if (self.dim() == 0) {
    values.copy_(self);
    indices.zero_();
    return;
  }
  sort_along("topk", self, k, dim, largest, values, indices);
}

} // namespace torch_webgpu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(sort_stub, &torch_webgpu::sort)
} // namespace at::native
