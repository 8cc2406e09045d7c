// Kernels of COO tensors that ATen has for CPU and CUDA apart, in terms of operators on their
// indices and values. The others are ATen's own: tools/codegen.py registers them.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_sparse_broadcast_to.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <vector>

#include "backend/registration.h"
#include "backend/torch_versions.h"
#include "ops/index/index_move.h"
#include "ops/sparse/sparse.h"

namespace at::native {
// PyTorch does not ship the header that declares it.
using flatten_indices_fn = Tensor (*)(const Tensor& indices, IntArrayRef size);
DECLARE_DISPATCH(flatten_indices_fn, flatten_indices_stub)
} // namespace at::native

namespace torch_webgpu {
namespace {

using at::IntArrayRef;
using at::Scalar;
using at::Tensor;

int64_t product(IntArrayRef sizes) { return c10::multiply_integers(sizes); }

Tensor coo(const Tensor& indices, const Tensor& values, IntArrayRef sizes, bool coalesced) {
  return at::_sparse_coo_tensor_unsafe(indices, values, sizes, values.options().layout(at::kSparse),
                                       coalesced);
}

// Sizes of a tensor of values: their number, then the dense dimensions.
std::vector<int64_t> value_sizes(int64_t count, const Tensor& values) {
  std::vector<int64_t> sizes = values.sizes().vec();
  sizes[0] = count;
  return sizes;
}

// The place of each element in a tensor of the sparse dimensions' sizes.
Tensor places_of(const Tensor& indices, IntArrayRef sizes) {
  if (sizes.empty()) {
    return at::zeros({indices.size(1)}, indices.options());
  }
  Tensor places = indices[0].clone();
  for (size_t d = 1; d < sizes.size(); ++d) {
    places = places.mul_(sizes[d]).add_(indices[static_cast<int64_t>(d)]);
  }
  return places;
}

// The indices of places in a tensor of such sizes, [sizes.size(), places].
Tensor indices_at(Tensor places, IntArrayRef sizes) {
  std::vector<Tensor> rows(sizes.size());
  for (size_t d = sizes.size(); d-- > 0;) {
    // Indices beyond the first size stay what they are: nobody checked them.
    rows[d] = d == 0 ? places : places.remainder(sizes[d]);
    places = places.floor_divide(sizes[d]);
  }
  return rows.empty() ? at::empty({0, places.size(0)}, places.options()) : at::stack(rows);
}

IntArrayRef sparse_sizes(const Tensor& self) { return self.sizes().slice(0, self.sparse_dim()); }

// Replaces what `out` holds.
Tensor& assign(Tensor& out, const Tensor& result) {
  TORCH_CHECK(at::canCast(result.scalar_type(), out.scalar_type()), "result type ",
              result.scalar_type(), " can't be cast to the desired output type ",
              out.scalar_type());
  auto* impl = at::sparse::get_sparse_impl(out);
  impl->raw_resize_(result.sparse_dim(), result.dense_dim(), result.sizes());
  at::sparse::alias_into_sparse(out, result._indices(), result._values().to(out.scalar_type()));
  out._coalesced_(result.is_coalesced());
  return out;
}

Tensor coalesce(const Tensor& self) {
  if (self._nnz() < 2) {
    return self.clone()._coalesced_(true);
  }
  const Tensor values = self._values();
  const IntArrayRef sizes = sparse_sizes(self);
  const auto [places, inverse, counts] =
      at::_unique2(places_of(self._indices(), sizes), /*sorted=*/true, /*return_inverse=*/true);
  // Sums of halves are float32, as on CUDA.
  const auto type = values.scalar_type();
  const auto sum_type = type == at::kHalf || type == at::kBFloat16 ? at::kFloat
                        : type == at::kBool                        ? at::kInt
                                                                   : type;
  const Tensor sums =
      at::zeros(value_sizes(places.size(0), values), values.options().dtype(sum_type))
          .index_add_(0, inverse, values.to(sum_type));
  return coo(indices_at(places, sizes), sums.to(type), self.sizes(), true);
}

// ---- Sums

Tensor& add_to_dense(const Tensor& dense, const Tensor& sparse, const Scalar& alpha, Tensor& out) {
  TORCH_CHECK(dense.sizes() == sparse.sizes(),
              "add: expected 'self' and 'other' to have same size, but self has size ",
              dense.sizes(), " while other has size ", sparse.sizes(),
              " (FYI: dense-sparse addition does not currently support broadcasting)");
  const auto type = at::result_type(dense, sparse);
  TORCH_CHECK(at::canCast(type, out.scalar_type()), "Can't convert result type ", type,
              " to output ", out.scalar_type(), " in add operation");
  Tensor sum = dense.to(type, /*non_blocking=*/false, /*copy=*/true).contiguous();
  if (sparse._nnz() > 0 && sum.numel() > 0) {
    // Elements of halves at one place add up as float32 there, and as halves in the dense tensor.
    const Tensor once = type == at::kHalf || type == at::kBFloat16 ? sparse.coalesce() : sparse;
    const Tensor values = once._values().to(type);
    std::vector<int64_t> sizes = value_sizes(product(sparse_sizes(sparse)), values);
    sum.view(sizes).index_add_(0, places_of(once._indices(), sparse_sizes(once)), values, alpha);
  }
  if (!out.is_same(dense)) {
    out.resize_as_(sum);
  }
  return out.copy_(sum);
}

Tensor& add_out(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& out) {
  if (!self.is_sparse()) {
    return add_to_dense(self, other, alpha, out);
  }
  TORCH_CHECK(other.is_sparse(),
              "add(sparse, dense) is not supported. Use add(dense, sparse) instead.");
  TORCH_CHECK(self.sizes() == other.sizes(),
              "add: expected sizes of 'self' and 'other' to match, but ", self.sizes(),
              " != ", other.sizes());
  TORCH_CHECK(at::sparse::is_same_density(self, other),
              "add: expected 'self' and 'other' to have same density, but 'self' has ",
              self.sparse_dim(), " sparse dimensions while 'other' has ", other.sparse_dim(),
              " sparse dimensions");
  const auto type = at::result_type(self, other);
  const Tensor indices = at::cat({self._indices(), other._indices()}, 1);
  const Tensor values =
      at::cat({self._values().to(type), other._values().to(type).mul(alpha).to(type)}, 0);
  const Tensor sum = coo(indices, values, self.sizes(), false);
  // As on the CPU, the sum of coalesced tensors is coalesced.
  return assign(out, self.is_coalesced() && other.is_coalesced() ? sum.coalesce() : sum);
}

// ---- Products by elements

// Where the sorted places `of` stand among the sorted places `in`: which do, and at which position.
std::pair<Tensor, Tensor> matches(const Tensor& of, const Tensor& in) {
  if (in.size(0) == 0) {
    const Tensor none = at::empty({0}, of.options());
    return {none, none};
  }
  const Tensor at = at::searchsorted(in, of).clamp_max_(in.size(0) - 1);
  const Tensor which = in.index_select(0, at).eq(of).nonzero().squeeze(1);
  return {which, at.index_select(0, which)};
}

Tensor product_of_sparse(const Tensor& a, const Tensor& b, at::ScalarType type) {
  TORCH_CHECK(a.sizes() == b.sizes(),
              "mul: expected 'self' and 'other' to have same sizes when "
              "both are sparse, but ",
              a.sizes(), " != ", b.sizes());
  TORCH_CHECK(at::sparse::is_same_density(a, b),
              "mul: expected 'self' and 'other' to have the "
              "same number of sparse dimensions, but ",
              a.sparse_dim(), " != ", b.sparse_dim());
  const Tensor left = a.coalesce(), right = b.coalesce();
  const auto [at_left, at_right] = matches(places_of(left._indices(), sparse_sizes(left)),
                                           places_of(right._indices(), sparse_sizes(right)));
  const Tensor values = left._values().index_select(0, at_left).to(type) *
                        right._values().index_select(0, at_right).to(type);
  return coo(left._indices().index_select(1, at_left), values, a.sizes(), true);
}

// The elements of `dense`, which broadcasts, where `sparse` has some.
Tensor elements_at(const Tensor& dense, const Tensor& sparse) {
  const Tensor values = sparse._values();
  if (sparse.sparse_dim() == 0) {
    return dense.expand(sparse.sizes()).unsqueeze(0).expand(values.sizes());
  }
  c10::List<std::optional<Tensor>> at;
  for (const Tensor& row : sparse._indices().unbind(0)) {
    at.push_back(row);
  }
  return at::index(dense.expand(sparse.sizes()), at);
}

Tensor product_with_dense(Tensor sparse, const Tensor& dense, at::ScalarType type) {
  if (dense.dim() > 0) {
    const auto sizes = at::infer_size(sparse.sizes(), dense.sizes());
    if (sparse.sizes() != sizes) {
      const Tensor whole = at::_sparse_broadcast_to(sparse, sizes);
      sparse = sparse.is_coalesced() ? whole.coalesce() : whole;
    }
  }
  const Tensor factors = dense.dim() == 0 ? dense : elements_at(dense, sparse);
  return coo(sparse._indices(), sparse._values().to(type) * factors.to(type), sparse.sizes(),
             sparse.is_coalesced());
}

// A number in any layout is a dense one.
Tensor dense_if_number(const Tensor& tensor) {
  return tensor.is_sparse() && tensor.dim() == 0 ? tensor.to_dense() : tensor;
}

Tensor& mul_out(const Tensor& self, const Tensor& other, Tensor& out) {
  const auto type = at::result_type(self, other);
  const Tensor right = dense_if_number(other);
  const Tensor left = right.is_sparse() ? dense_if_number(self) : self;
  if (!left.is_sparse()) {
    return assign(out, product_with_dense(right, left, type));
  }
  if (!right.is_sparse()) {
    return assign(out, product_with_dense(left, right, type));
  }
  return assign(out, product_of_sparse(left, right, type));
}

// ---- Matrix products

void check_matrices(const char* op, const Tensor& sparse, const Tensor& dense) {
  TORCH_CHECK(sparse.sparse_dim() == 2 && sparse.dense_dim() == 0, op,
              ": expected a sparse matrix of two sparse and no dense dimensions, but got ",
              sparse.sparse_dim(), " and ", sparse.dense_dim());
  TORCH_CHECK(dense.dim() == 2 && !dense.is_sparse(), op, ": 2D dense tensor expected, got ",
              dense.dim(), "D tensor");
  TORCH_CHECK(sparse.size(1) == dense.size(0), op, ": Argument #3 (dense): Expected dim 0 size ",
              sparse.size(1), ", got ", dense.size(0));
  check_dtypes(sparse, dense);
}

Tensor addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
             const Scalar& alpha) {
  TORCH_CHECK(self.layout() == at::kStrided,
              "addmm: expected strided result tensor, got tensor "
              "with layout ",
              self.layout());
  TORCH_CHECK(mat1.is_sparse() && mat2.layout() == at::kStrided,
              "addmm: expected either 'mat1' to have sparse layout and 'mat2' to have strided "
              "layout, got 'mat1' with layout ",
              mat1.layout(), " and 'mat2' with layout ", mat2.layout());
  check_matrices("addmm", mat1, mat2);
  TORCH_CHECK(self.scalar_type() == mat1.scalar_type(), "expected scalar type ", mat1.scalar_type(),
              " but found ", self.scalar_type());
  const Tensor indices = mat1._indices();
  const Tensor sum = sparse_times_dense(indices[0], indices[1], mat1._values(), mat1.size(0), mat2);
  return scaled_sum(self, sum, beta, alpha);
}

Tensor& addmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                  const Scalar& alpha, Tensor& out) {
  return set_result(out, addmm(self, mat1, mat2, beta, alpha));
}

Tensor& addmm_(Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
               const Scalar& alpha) {
  return self.copy_(addmm(self, mat1, mat2, beta, alpha));
}

Tensor bmm(const Tensor& self, const Tensor& mat2) {
  TORCH_CHECK(self.sparse_dim() == 3 && self.dense_dim() == 0,
              "bmm_sparse: Tensor 'self' must have 3 sparse and no dense dimensions, but has ",
              self.sparse_dim(), " and ", self.dense_dim());
  TORCH_CHECK(!mat2.is_sparse() && mat2.dim() == 3,
              "bmm_sparse: Tensor 'mat2' must be dense and have 3 dims, but has ", mat2.dim());
  TORCH_CHECK(self.size(0) == mat2.size(0),
              "bmm_sparse: 'self.size(0)' and 'mat2.size(0)' must match");
  TORCH_CHECK(self.size(2) == mat2.size(1),
              "bmm_sparse: 'self.size(2)' and 'mat2.size(1)' must match");
  check_dtypes(self, mat2);
  const Tensor indices = self._indices();
  return sparse_times_dense(indices[0] * self.size(1) + indices[1],
                            indices[0] * self.size(2) + indices[2], self._values(),
                            self.size(0) * self.size(1),
                            mat2.reshape({mat2.size(0) * mat2.size(1), mat2.size(2)}))
      .view({self.size(0), self.size(1), mat2.size(2)});
}

Tensor& bmm_out(const Tensor& self, const Tensor& mat2, Tensor& out) {
  return set_result(out, bmm(self, mat2));
}

// For runs of `lengths` elements, one behind the other: the run of each element, and its place in
// it.
std::pair<Tensor, Tensor> elements_of_runs(const Tensor& lengths) {
  const Tensor ends = lengths.cumsum(0);
  const Tensor run = at::arange(lengths.size(0), lengths.options()).repeat_interleave(lengths);
  const Tensor place =
      at::arange(run.size(0), lengths.options()) - (ends - lengths).index_select(0, run);
  return {run, place};
}

Tensor sparse_matmul(const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.dim() == 2 && b.dim() == 2 && a.dense_dim() == 0 && b.dense_dim() == 0,
              "sparse_sparse_matmul: expected two matrices without dense dimensions");
  check_sparse_product("_sparse_sparse_matmul", a, b);
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "mat1 dtype ", a.scalar_type(),
              " does not match mat2 dtype ", b.scalar_type());
  const Tensor right = b.coalesce();
  // Each element of `a` meets a row of `b`: those are runs, since indices are sorted.
  const Tensor rows = right._indices()[0];
  const Tensor inner = a._indices()[1];
  const Tensor begin = at::searchsorted(rows.contiguous(), inner.contiguous());
  const Tensor end =
      at::searchsorted(rows.contiguous(), inner.contiguous(), /*out_int32=*/false, /*right=*/true);
  const auto [of_a, place] = elements_of_runs(end - begin);
  const Tensor of_b = begin.index_select(0, of_a) + place;
  const Tensor indices =
      at::stack({a._indices()[0].index_select(0, of_a), right._indices()[1].index_select(0, of_b)});
  const Tensor values = a._values().index_select(0, of_a) * right._values().index_select(0, of_b);
  return coo(indices, values, {a.size(0), b.size(1)}, false).coalesce();
}

// Sparse times dense as a tensor of rows: those in which the sparse matrix has elements.
Tensor hspmm(const Tensor& mat1, const Tensor& mat2) {
  check_matrices("hspmm", mat1, mat2);
  const Tensor indices = mat1._indices();
  const auto [rows, row_of_element, counts] =
      at::_unique2(indices[0], /*sorted=*/true, /*return_inverse=*/true);
  const Tensor values =
      sparse_times_dense(row_of_element, indices[1], mat1._values(), rows.size(0), mat2);
  return coo(rows.unsqueeze(0), values, {mat1.size(0), mat2.size(1)}, true);
}

Tensor& hspmm_out(const Tensor& mat1, const Tensor& mat2, Tensor& out) {
  return assign(out, hspmm(mat1, mat2));
}

// A sparse sum: the elements of `self`, then all elements of the product's rows.
Tensor& sspaddmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                     const Scalar& alpha, Tensor& out) {
  const Tensor product = hspmm(mat1, mat2);
  TORCH_CHECK(self.is_sparse() && out.is_sparse(),
              "sspaddmm: expected sparse tensors to add to and for the result, but got ",
              self.layout(), " and ", out.layout());
  check_dtypes(self, product);
  const Tensor rows = product._indices()[0];
  const int64_t columns = mat2.size(1);
  const Tensor indices = at::stack(
      {rows.repeat_interleave(columns), at::arange(columns, rows.options()).repeat(rows.size(0))});
  const Tensor none = at::zeros({1}, product._values().options());
  const Tensor of_product = scaled_sum(none, product._values().flatten(), 0, alpha);
  if (self._nnz() == 0) { // of any size, as torch.smm() has it
    return assign(out, coo(indices, of_product, product.sizes(), false));
  }
  TORCH_CHECK(self.sizes() == product.sizes() && self.dense_dim() == 0,
              "sspaddmm: Argument #1: Expected a sparse matrix of size ", product.sizes(),
              ", got size ", self.sizes());
  const Tensor of_self = scaled_sum(none, self._values(), 0, beta);
  return assign(out, coo(at::cat({self._indices(), indices}, 1), at::cat({of_self, of_product}),
                         product.sizes(), false));
}

// ---- Others

// Writes an output of an operator that ran on the CPU.
Tensor copy_from_and_resize(const Tensor& self, const Tensor& target) {
  Tensor out = target;
  return assign(out, self.to(target.device()));
}

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  TORCH_CHECK_INDEX(self.dim() != 0, "index_select() cannot be applied to a 0-dim tensor.");
  TORCH_CHECK_INDEX(index.dim() == 1 && index.scalar_type() == at::kLong &&
                        index.layout() == at::kStrided,
                    "index_select() argument index must be 1-D strided (non-sparse) long-tensor.");
  dim = c10::maybe_wrap_dim(dim, self.dim());
  const int64_t size = self.size(dim);
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes[dim] = index.size(0);
  if (dim >= self.sparse_dim()) {
    return coo(self._indices(), self._values().index_select(dim - self.sparse_dim() + 1, index),
               sizes, self.is_coalesced());
  }
  if (index.numel() > 0) {
    TORCH_CHECK_INDEX(index.ge(-size).logical_and_(index.lt(size)).all().item<bool>(),
                      "index_select(): index contains a value that is out of range for tensor of "
                      "size ",
                      self.sizes(), " at dimension ", dim);
  }
  const Tensor wrapped = index.where(index.ge(0), index + size);
  const auto [sorted, order] = self._indices()[dim].sort();
  const Tensor begin = at::searchsorted(sorted, wrapped);
  const Tensor end = at::searchsorted(sorted, wrapped, /*out_int32=*/false, /*right=*/true);
  const auto [which, place] = elements_of_runs(end - begin);
  const Tensor elements = order.index_select(0, begin.index_select(0, which) + place);
  const Tensor indices = self._indices().index_select(1, elements);
  indices[dim].copy_(which);
  return coo(indices, self._values().index_select(0, elements), sizes, elements.size(0) < 2);
}

void check_mask(const char* op, const Tensor& self, const Tensor& mask) {
  TORCH_CHECK(mask.is_sparse(), op, "(): expected mask to be sparse COO");
  TORCH_CHECK(self.sizes() == mask.sizes(), op,
              "(): operands have incompatible sizes; self has size ", self.sizes(),
              " but mask has size ", mask.sizes());
}

// What `self` has at the mask's elements, in their order: 0 where it has none.
Tensor sparse_mask(const Tensor& self, const Tensor& mask) {
  check_mask("sparse_mask", self, mask);
  if (self.is_same(mask)) {
    return self;
  }
  const Tensor indices = mask._indices().clone();
  if (!self.is_sparse()) {
    return coo(indices, elements_at(self, mask), self.sizes(), mask.is_coalesced());
  }
  const Tensor given = self.coalesce();
  const Tensor of_self = given._values();
  const auto [which, at] = matches(places_of(indices, sparse_sizes(mask)),
                                   places_of(given._indices(), sparse_sizes(given)));
  const Tensor values = at::zeros(value_sizes(mask._nnz(), of_self), of_self.options())
                            .index_copy_(0, which, of_self.index_select(0, at));
  return coo(indices, values, self.sizes(), mask.is_coalesced());
}

// The elements of `self` where the mask has some: times how many, if these are to accumulate.
Tensor sparse_mask_projection(const Tensor& self, const Tensor& mask, bool accumulate_matches) {
  check_mask("_sparse_mask_projection", self, mask);
  const Tensor places = places_of(self._indices(), sparse_sizes(self));
  const auto [wanted, order] = places_of(mask._indices(), sparse_sizes(mask)).sort();
  const Tensor count = at::searchsorted(wanted, places, /*out_int32=*/false, /*right=*/true) -
                       at::searchsorted(wanted, places);
  const Tensor which = count.nonzero().squeeze(1);
  Tensor values = self._values().index_select(0, which);
  if (accumulate_matches) {
    std::vector<int64_t> sizes(values.dim(), 1);
    sizes[0] = which.size(0);
    values = values * count.index_select(0, which).view(sizes).to(values.scalar_type());
  }
  return coo(self._indices().index_select(1, which), values, self.sizes(), self.is_coalesced());
}

Tensor sum_backward(const Tensor& grad, const Tensor& self, IntArrayRef dims) {
  const int64_t sparse_dims = self.sparse_dim();
  const Tensor input = self.coalesce();
  const Tensor values = input._values();
  std::vector<bool> summed(self.dim());
  for (const int64_t d : dims) {
    summed[c10::maybe_wrap_dim(d, self.dim())] = true;
  }
  std::vector<int64_t> kept;
  for (int64_t d = 0; d < sparse_dims; ++d) {
    if (!summed[d]) {
      kept.push_back(d);
    }
  }
  // Gradients of values, or of one value for all, with the summed dense dimensions as 1.
  const auto with_dense = [&](Tensor gradients) {
    for (int64_t d = sparse_dims; d < self.dim(); ++d) {
      if (summed[d]) {
        gradients = gradients.unsqueeze(d - sparse_dims + 1);
      }
    }
    return gradients;
  };
  if (kept.empty()) {
    const Tensor all = with_dense(grad.unsqueeze(0)).expand(values.sizes()).contiguous();
    return coo(input._indices(), all, self.sizes(), true);
  }
  TORCH_CHECK(grad.is_sparse(), "_sparse_sum_backward_cuda: expected grad_ Tensor to be sparse, "
                                "but got dense");
  std::vector<int64_t> sizes;
  for (const int64_t d : kept) {
    sizes.push_back(self.size(d));
  }
  const Tensor given = grad.coalesce();
  const Tensor rows = at::stack([&] {
    std::vector<Tensor> of_kept;
    for (const int64_t d : kept) {
      of_kept.push_back(input._indices()[d]);
    }
    return of_kept;
  }());
  const auto [which, at] = matches(places_of(rows, sizes), places_of(given._indices(), sizes));
  const Tensor found =
      with_dense(given._values().index_select(0, at)).expand(value_sizes(which.size(0), values));
  const Tensor gradients = at::zeros(values.sizes(), values.options())
                               .index_copy_(0, which, found.to(values.scalar_type()).contiguous());
  return coo(input._indices(), gradients, self.sizes(), true);
}

// ---- Softmax: what is not there counts as -infinity.

// For each element, the number of its row along a sparse dimension, and how many rows there are.
std::pair<Tensor, int64_t> rows_along(const Tensor& self, int64_t dim) {
  std::vector<Tensor> others;
  std::vector<int64_t> sizes;
  for (int64_t d = 0; d < self.sparse_dim(); ++d) {
    if (d != dim) {
      others.push_back(self._indices()[d]);
      sizes.push_back(self.size(d));
    }
  }
  if (others.empty()) {
    return {at::zeros({self._nnz()}, self._indices().options()), 1};
  }
  const auto [places, inverse, counts] =
      at::_unique2(places_of(at::stack(others), sizes), true, true);
  return {inverse, places.size(0)};
}

Tensor sum_of_rows(const Tensor& values, const Tensor& rows, int64_t count) {
  return at::zeros(value_sizes(count, values), values.options()).index_add_(0, rows, values);
}

template <bool kLog>
Tensor softmax(const Tensor& self, int64_t dim, bool half_to_float) {
  TORCH_CHECK(!half_to_float,
              "softmax with half to float conversion is not supported on sparse tensors");
  dim = c10::maybe_wrap_dim(dim, self.dim());
  const Tensor input = self.coalesce();
  const Tensor values = input._values();
  if (dim >= self.sparse_dim()) {
    const int64_t d = dim - self.sparse_dim() + 1;
    return coo(input._indices(), kLog ? values.log_softmax(d) : values.softmax(d), self.sizes(),
               true);
  }
  const auto [rows, count] = rows_along(input, dim);
  const Tensor least = at::full(value_sizes(count, values),
                                -std::numeric_limits<double>::infinity(), values.options());
  const Tensor most = index_reduce_unwarned(least, 0, rows, values, "amax").index_select(0, rows);
  const Tensor above =
      (values - most).masked_fill(most.isneginf(), -std::numeric_limits<double>::infinity());
  const Tensor weights = above.exp();
  const Tensor sums = sum_of_rows(weights, rows, count).index_select(0, rows);
  return coo(input._indices(), kLog ? above - sums.log() : weights / sums, self.sizes(), true);
}

template <bool kLog>
Tensor softmax_backward(const Tensor& grad, const Tensor& output, int64_t dim, const Tensor& self) {
  dim = c10::maybe_wrap_dim(dim, self.dim());
  const Tensor out = output.coalesce(), given = grad.coalesce();
  const Tensor y = out._values();
  // Gradients where the output has elements; elsewhere the gradient does not matter.
  const auto [which, at] = matches(places_of(out._indices(), sparse_sizes(out)),
                                   places_of(given._indices(), sparse_sizes(given)));
  const Tensor g =
      at::zeros(y.sizes(), y.options()).index_copy_(0, which, given._values().index_select(0, at));
  const bool along_dense = dim >= self.sparse_dim();
  const Tensor terms = kLog ? g : g * y;
  Tensor sums;
  if (along_dense) {
    sums = terms.sum(dim - self.sparse_dim() + 1, /*keepdim=*/true);
  } else {
    const auto [rows, count] = rows_along(out, dim);
    sums = sum_of_rows(terms, rows, count).index_select(0, rows);
  }
  return coo(out._indices(), kLog ? g - y.exp() * sums : y * (g - sums), self.sizes(), true);
}

TW_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_coalesce", coalesce);
  m.impl("add.out", add_out);
  m.impl("mul.out", mul_out);
  m.impl("addmm", addmm);
  m.impl("addmm.out", addmm_out);
  m.impl("addmm_", addmm_);
  m.impl("bmm", bmm);
  m.impl("bmm.out", bmm_out);
  m.impl("_sparse_sparse_matmul", sparse_matmul);
  m.impl("hspmm", hspmm);
  m.impl("hspmm.out", hspmm_out);
  m.impl("sspaddmm.out", sspaddmm_out);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("index_select", index_select);
  m.impl("sparse_mask", sparse_mask);
  m.impl("_sparse_mask_projection", sparse_mask_projection);
  m.impl("_sparse_sum_backward", sum_backward);
  m.impl("_sparse_softmax", softmax<false>);
  m.impl("_sparse_softmax_backward_data", softmax_backward<false>);
  m.impl("_sparse_log_softmax", softmax<true>);
  m.impl("_sparse_log_softmax_backward_data", softmax_backward<true>);
}

} // namespace

// For functions of ATen that ask for places.
Tensor flatten_indices(const Tensor& indices, IntArrayRef sizes) {
  return places_of(indices, sizes);
}

Tensor sparse_times_dense(const Tensor& rows, const Tensor& columns, const Tensor& values,
                          int64_t count, const Tensor& dense) {
  const auto type = dense.scalar_type();
  const auto sum_type = type_of_sums(type);
  const Tensor terms =
      dense.index_select(0, columns).to(sum_type) * values.to(sum_type).unsqueeze(1);
  return at::zeros({count, dense.size(1)}, dense.options().dtype(sum_type))
      .index_add_(0, rows, terms)
      .to(type);
}

Tensor scaled_sum(const Tensor& self, const Tensor& product, const Scalar& beta,
                  const Scalar& alpha) {
  // For integers the CPU, too, takes the whole part of alpha, and refuses such a beta.
  const bool whole = at::isIntegralType(product.scalar_type(), /*includeBool=*/false);
  TORCH_CHECK(!whole || beta.equal(0) || beta.isIntegral(/*includeBool=*/true), "result type ",
              beta.type(), " can't be cast to the desired output type ", product.scalar_type());
  const Scalar of_product = whole ? Scalar(alpha.to<int64_t>()) : alpha;
  const Tensor scaled = of_product.equal(1) ? product : product * of_product;
  const Tensor other = self.expand(product.sizes());
  // As for dense matrices: what is multiplied by 0 may hold anything.
  return beta.equal(0) ? scaled : scaled.add(other, beta);
}

void check_dtypes(const Tensor& one, const Tensor& other) {
  TORCH_CHECK(one.scalar_type() == other.scalar_type(), "expected scalar type ", one.scalar_type(),
              " but found ", other.scalar_type());
}

Tensor& set_result(Tensor& out, const Tensor& result) {
  TORCH_CHECK(out.layout() == at::kStrided,
              "expected strided result tensor, got tensor with "
              "layout ",
              out.layout());
  check_dtypes(result, out);
  return out.resize_(result.sizes()).copy_(result);
}

} // namespace torch_webgpu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(flatten_indices_stub, &torch_webgpu::flatten_indices)
} // namespace at::native
