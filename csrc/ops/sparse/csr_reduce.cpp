// Reductions of CSR matrices, and their products with dense ones that reduce by other means than
// sums.
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <array>
#include <bitset>
#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>

#include "backend/registration.h"
#include "ops/index/index_move.h"
#include "ops/sparse/sparse.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

// Sums or products of rows, of columns, or of all. What is not there counts as nothing, so that a
// row without elements has no result.
template <bool kProduct>
Tensor reduce(const Tensor& self, at::IntArrayRef dims, bool keepdim,
              std::optional<at::ScalarType> dtype) {
  check_csr("reduction operations on CSR tensors", self);
  TORCH_CHECK(keepdim, "reduction operations on CSR tensors with keepdim=False is unsupported");
  TORCH_CHECK(self.dim() == 2 && self.dense_dim() == 0,
              "reduction operations on CSR tensors take matrices only, but got a tensor of ",
              self.dim(), " dimensions");
  const std::bitset<at::dim_bitset_size> reduced = at::dim_list_to_bitset(dims, self.dim());
  const bool all = dims.empty() || reduced.count() == 2;
  const auto type = dtype.value_or(at::isIntegralType(self.scalar_type(), /*includeBool=*/true)
                                       ? at::kLong
                                       : self.scalar_type());
  const Tensor indices = indices_of_elements(self);
  const Tensor kept = all ? at::zeros_like(indices[0]) : indices[reduced[0] ? 1 : 0];
  const auto [places, place_of_element, counts] =
      at::_unique2(kept, /*sorted=*/true, /*return_inverse=*/true);
  const Tensor terms = self.values().to(type_of_sums(type));
  const Tensor values =
      kProduct
          ? index_reduce_unwarned(at::ones({places.size(0)}, terms.options()), 0, place_of_element,
                                  terms, "prod")
          : at::zeros({places.size(0)}, terms.options()).index_add_(0, place_of_element, terms);
  const Tensor none = at::zeros_like(places);
  const bool of_columns = !all && reduced[0];
  const Tensor result = at::_sparse_coo_tensor_unsafe(
      at::stack({of_columns ? none : places, of_columns ? places : none}), values.to(type),
      {of_columns || all ? 1 : self.size(0), of_columns ? self.size(1) : 1},
      self.options().dtype(type).layout(at::kSparse), /*is_coalesced=*/true);
  const Tensor csr = result.to_sparse_csr();
  const auto index_type = self.col_indices().scalar_type();
  return at::_sparse_compressed_tensor_unsafe(csr.crow_indices().to(index_type),
                                              csr.col_indices().to(index_type), csr.values(),
                                              csr.sizes(), csr.options());
}

// ---- Products that reduce

enum class Reduction : uint8_t { kSum, kMean, kMax, kMin };

Reduction reduction_of(std::string_view name) {
  if (name == "sum") {
    return Reduction::kSum;
  }
  if (name == "mean") {
    return Reduction::kMean;
  }
  if (name == "amax" || name == "max") {
    return Reduction::kMax;
  }
  TORCH_CHECK(name == "amin" || name == "min",
              "torch.sparse.mm: reduce argument must be either sum, mean, amax or amin, got ",
              name);
  return Reduction::kMin;
}

bool selects(Reduction reduction) {
  return reduction == Reduction::kMax || reduction == Reduction::kMin;
}

// The numbers of elements in rows, [rows, 1], and 1 for a row without.
Tensor divisors(const Tensor& csr) { return csr.crow_indices().diff().clamp_min(1).unsqueeze(1); }

// Rows of self times `other`, where `reduce` stands for the sum. The second result has for each
// maximum the number of the element that gave it, and the count of elements where a row has none.
// It is empty where no gradient will need it.
std::tuple<Tensor, Tensor> mm_reduce(const Tensor& self, const Tensor& other,
                                     std::string_view reduce) {
  const Reduction reduction = reduction_of(reduce);
  check_csr("torch.sparse.mm with reduce", self);
  TORCH_CHECK(self.dim() == 2 && self.dense_dim() == 0 && other.dim() == 2 &&
                  other.layout() == at::kStrided,
              "torch.sparse.mm with reduce: expected a sparse and a dense matrix, but got tensors "
              "of ",
              self.dim(), " and ", other.dim(), " dimensions");
  TORCH_CHECK(self.size(1) == other.size(0), "mat1 and mat2 shapes cannot be multiplied (",
              self.size(0), "x", self.size(1), " and ", other.size(0), "x", other.size(1), ")");
  check_dtypes(self, other);
  const Tensor indices = indices_of_elements(self);
  const Tensor rows = indices[0], columns = indices[1], values = self.values();
  Tensor elements = at::empty({0}, self.crow_indices().options());
  if (!selects(reduction)) {
    const Tensor sum = sparse_times_dense(rows, columns, values, self.size(0), other);
    return {reduction == Reduction::kMean ? sum / divisors(self) : sum, elements};
  }
  const Tensor terms = other.index_select(0, columns) * values.unsqueeze(1);
  // Rows without elements stay 0.
  const Tensor result =
      index_reduce_unwarned(at::zeros({self.size(0), other.size(1)}, other.options()), 0, rows,
                            terms, reduction == Reduction::kMax ? "amax" : "amin",
                            /*include_self=*/false);
  if (at::GradMode::is_enabled() && (self.requires_grad() || other.requires_grad())) {
    const int64_t count = values.size(0);
    const Tensor here = terms.eq(result.index_select(0, rows)).logical_or_(terms.isnan());
    const Tensor numbers = at::arange(count, elements.options()).unsqueeze(1);
    elements = index_reduce_unwarned(at::full(result.sizes(), count, elements.options()), 0, rows,
                                     at::where(here, numbers, count), "amin");
  }
  return {result, elements};
}

std::tuple<Tensor, Tensor> mm_reduce_backward(const Tensor& self, const Tensor& grad_out,
                                              const Tensor& other, std::string_view reduce,
                                              const Tensor& elements, std::array<bool, 2> wanted) {
  const Reduction reduction = reduction_of(reduce);
  const auto type = self.scalar_type();
  const auto sum_type = type_of_sums(type);
  const Tensor indices = indices_of_elements(self);
  const Tensor rows = indices[0], columns = indices[1], values = self.values().to(sum_type);
  const Tensor dense = other.to(sum_type);
  Tensor grad = grad_out.to(sum_type);
  Tensor of_values, of_dense;
  if (!selects(reduction)) {
    if (reduction == Reduction::kMean) {
      grad = grad / divisors(self);
    }
    if (wanted[0]) {
      of_values = (grad.index_select(0, rows) * dense.index_select(0, columns)).sum(1);
    }
    if (wanted[1]) {
      of_dense = sparse_times_dense(columns, rows, values, other.size(0), grad);
    }
  } else {
    // One place more stands for the element of rows that have none.
    const Tensor place = elements.flatten();
    const Tensor none = at::zeros({1}, columns.options());
    const Tensor column = at::cat({columns, none}).index_select(0, place).view(elements.sizes());
    if (wanted[0]) {
      const Tensor terms = (grad * dense.gather(0, column)).flatten();
      of_values = at::zeros({values.size(0) + 1}, values.options())
                      .index_add_(0, place, terms)
                      .narrow(0, 0, values.size(0));
    }
    if (wanted[1]) {
      const Tensor factors =
          at::cat({values, none.to(sum_type)}).index_select(0, place).view(elements.sizes());
      of_dense = at::zeros_like(dense).scatter_add_(0, column, grad * factors);
    }
  }
  Tensor of_self;
  if (of_values.defined()) {
    of_self = at::_sparse_compressed_tensor_unsafe(
        self.crow_indices(), self.col_indices(), of_values.to(type), self.sizes(), self.options());
  }
  return {of_self, of_dense.defined() ? of_dense.to(type) : of_dense};
}

TW_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("_sparse_csr_sum.dim_dtype", reduce<false>);
  m.impl("_sparse_csr_prod.dim_dtype", reduce<true>);
  m.impl("_sparse_mm_reduce_impl", mm_reduce);
  m.impl("_sparse_mm_reduce_impl_backward", mm_reduce_backward);
}

} // namespace
} // namespace torch_webgpu
