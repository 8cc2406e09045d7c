// The unique family: equal elements become neighbours, and a change of value starts a new one.
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>

#include <algorithm>
#include <utility>

#include "backend/registration.h"
#include "launch/common.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using Unique = std::tuple<Tensor, Tensor, Tensor>; // values, inverse, counts

struct Wanted {
  bool inverse;
  bool counts;
};

// `changed[i]`: item i + 1 differs from item i. `order`, if defined, says which original item an
// item is. Returns the positions of the first items, and inverse and counts as wanted.
Unique find_groups(const Tensor& changed, const Tensor& order, Wanted wanted) {
  const Tensor first = at::cat({at::ones({1}, changed.options()), changed});
  const Tensor starts = at::nonzero(first).squeeze(1);
  const auto options = starts.options();
  Tensor inverse = at::empty({0}, options);
  Tensor counts = at::empty({0}, options);
  if (wanted.inverse) {
    const Tensor number =
        at::searchsorted(starts, at::arange(first.numel(), options), false, /*right=*/true).sub(1);
    inverse = order.defined() ? at::empty_like(number).scatter_(0, order, number) : number;
  }
  if (wanted.counts) {
    const Tensor end = at::full({1}, first.numel(), options);
    counts = at::cat({starts.narrow(0, 1, starts.numel() - 1), end}).sub(starts);
  }
  return {starts, inverse, counts};
}

Unique unique_elements(const Tensor& self, bool sorts, Wanted wanted) {
  Tensor items = self.reshape({-1});
  const int64_t size = items.numel();
  if (size == 0) {
    const Tensor none = at::empty({0}, self.options().dtype(at::kLong));
    return {items.clone(), wanted.inverse ? none.view(self.sizes()) : none, none};
  }
  Tensor order;
  if (sorts) {
    std::tie(items, order) = at::sort(items, /*stable=*/true, 0, /*descending=*/false);
  }
  auto [starts, inverse, counts] =
      find_groups(items.narrow(0, 1, size - 1).ne(items.narrow(0, 0, size - 1)), order, wanted);
  return {items.index_select(0, starts), wanted.inverse ? inverse.view(self.sizes()) : inverse,
          counts};
}

Unique unique_rows(const Tensor& self, int64_t dim, bool sorts, Wanted wanted) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  const auto empty_dims = std::count(self.sizes().begin(), self.sizes().end(), 0);
  if (self.size(dim) == 0) {
    TORCH_CHECK(empty_dims == 1,
                "Number of zero sized dimensions is more than one, so unique cannot be applied ");
    const Tensor none = at::empty({0}, self.options().dtype(at::kLong));
    return {at::empty(self.sizes(), self.options()), none, none};
  }
  TORCH_CHECK(
      empty_dims == 0,
      "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
  const int64_t size = self.size(dim);
  Tensor rows = self.movedim(dim, 0).reshape({size, -1});
  Tensor order;
  if (sorts) {
    // Stable sorts from the last column to the first give the lexicographic order. NaN comes last,
    // as in sorting. On the CPU and with CUDA it is neither less nor greater than anything, so that
    // the order of rows with NaN, and whether equal rows around them become neighbours, depends on
    // the algorithm there.
    order = at::arange(size, self.options().dtype(at::kLong));
    for (int64_t column = rows.size(1); column-- > 0;) {
      const Tensor key = rows.select(1, column).index_select(0, order);
      order = order.index_select(0, std::get<1>(at::sort(key, /*stable=*/true, 0, false)));
    }
    rows = rows.index_select(0, order);
  }
  auto [starts, inverse, counts] = find_groups(
      rows.narrow(0, 1, size - 1).ne(rows.narrow(0, 0, size - 1)).any(1), order, wanted);
  const Tensor kept = order.defined() ? order.index_select(0, starts) : starts;
  return {self.index_select(dim, kept), inverse, counts};
}

std::tuple<Tensor, Tensor> unique(const Tensor& self, bool, bool return_inverse) {
  auto [values, inverse, counts] = unique_elements(self, true, {return_inverse, false});
  return {values, inverse};
}

Unique unique2(const Tensor& self, bool, bool return_inverse, bool return_counts) {
  return unique_elements(self, true, {return_inverse, return_counts});
}

// As on the CPU, rows come with inverse and counts whether they are asked for or not.
Unique unique_dim(const Tensor& self, int64_t dim, bool, bool, bool) {
  return unique_rows(self, dim, true, {true, true});
}

Unique unique_consecutive(const Tensor& self, bool return_inverse, bool return_counts,
                          std::optional<int64_t> dim) {
  if (dim && !(*dim == 0 && self.dim() == 1)) {
    return unique_rows(self, *dim, false, {true, true});
  }
  return unique_elements(self, false, {return_inverse, return_counts});
}

Unique unique_dim_consecutive(const Tensor& self, int64_t dim, bool, bool) {
  return unique_rows(self, dim, false, {true, true});
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_unique", TORCH_FN(unique));
  m.impl("_unique2", TORCH_FN(unique2));
  m.impl("unique_dim", TORCH_FN(unique_dim));
  m.impl("unique_consecutive", TORCH_FN(unique_consecutive));
  m.impl("unique_dim_consecutive", TORCH_FN(unique_dim_consecutive));
}

} // namespace
} // namespace torch_webgpu
