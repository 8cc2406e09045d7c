// Kernels of compressed sparse tensors that ATen has for CPU and CUDA apart.
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_convert_indices_from_coo_to_csr.h>
#include <ATen/ops/_convert_indices_from_csr_to_coo.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/_validate_compressed_sparse_indices.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/index.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>

#include <optional>

#include "backend/registration.h"
#include "backend/torch_versions.h"
#include "ops/sparse/sparse.h"
#include "structured_ops.h"

namespace torch_webgpu {
namespace {

using at::Scalar;
using at::Tensor;

// Any layout of a matrix as COO.
Tensor as_coo(const Tensor& matrix) { return matrix.to_sparse(); }

bool is_compressed(const Tensor& tensor) { return at::sparse_csr::is_sparse_compressed(tensor); }

Tensor& store(Tensor& out, const Tensor& compressed) {
  out.resize_as_sparse_(compressed);
  return out.copy_(compressed);
}

// Stores a COO result in a compressed tensor.
Tensor& compress_into(Tensor& out, const Tensor& result) {
  return store(out, result.coalesce().to_sparse(out.layout()));
}

// Writes an output of an operator that ran on the CPU.
Tensor copy_from_and_resize(const Tensor& self, const Tensor& target) {
  Tensor out = target;
  return store(out, self.to(target.device()));
}

Tensor& addmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                  const Scalar& alpha, Tensor& out) {
  TORCH_CHECK(mat1.dim() == 2 && mat2.dim() == 2, "addmm: expected matrices, but got tensors of ",
              mat1.dim(), " and ", mat2.dim(), " dimensions");
  check_sparse_product("addmm", mat1, mat2);
  check_dtypes(mat1, mat2);
  check_dtypes(mat1, self);
  const bool makes_sparse = mat1.layout() != at::kStrided && mat2.layout() != at::kStrided;
  TORCH_CHECK(out.layout() == at::kStrided || (is_compressed(out) && makes_sparse),
              "addmm: computation on webgpu is not implemented for ", out.layout(), " + ",
              mat1.layout(), " @ ", mat2.layout());
  if (is_compressed(out)) {
    Tensor sum = as_coo(mat1).matmul(as_coo(mat2)).mul(alpha);
    if (!beta.equal(0)) {
      sum = sum.add(as_coo(self), beta);
    }
    return compress_into(out, sum);
  }
  Tensor product;
  if (is_compressed(mat1) && mat2.layout() == at::kStrided) {
    const Tensor indices = as_coo(mat1)._indices();
    product =
        sparse_times_dense(indices[0], indices[1], as_coo(mat1)._values(), mat1.size(0), mat2);
  } else if (mat1.layout() == at::kStrided) {
    const Tensor right = as_coo(mat2);
    const Tensor indices = right._indices();
    product =
        sparse_times_dense(indices[1], indices[0], right._values(), mat2.size(1), mat1.t()).t();
  } else {
    product = as_coo(mat1).matmul(as_coo(mat2)).to_dense();
  }
  return set_result(out, scaled_sum(self, product, beta, alpha));
}

Tensor& addmv_out(const Tensor& self, const Tensor& mat, const Tensor& vec, const Scalar& beta,
                  const Scalar& alpha, Tensor& out) {
  TORCH_CHECK(mat.dim() == 2 && vec.dim() == 1, "addmv: expected a matrix and a vector");
  TORCH_CHECK(mat.size(1) == vec.size(0), "size mismatch, got input (", mat.size(0), "x",
              mat.size(1), "), vec (", vec.size(0), ")");
  check_dtypes(mat, vec);
  check_dtypes(mat, self);
  const Tensor matrix = as_coo(mat);
  const Tensor indices = matrix._indices();
  const Tensor product =
      sparse_times_dense(indices[0], indices[1], matrix._values(), mat.size(0), vec.unsqueeze(1))
          .squeeze(1);
  return set_result(out, scaled_sum(self, product, beta, alpha));
}

// ---- Products of batches

Tensor& baddbmm_out(const Tensor& self, const Tensor& batch1, const Tensor& batch2,
                    const Scalar& beta, const Scalar& alpha, Tensor& out) {
  check_csr("baddbmm", batch1);
  TORCH_CHECK(batch1.dim() == 3 && batch2.dim() == 3 && batch2.layout() == at::kStrided,
              "baddbmm: expected batches of sparse and of dense matrices, but got tensors of ",
              batch1.dim(), " and ", batch2.dim(), " dimensions");
  TORCH_CHECK(batch1.size(0) == batch2.size(0) && batch1.size(2) == batch2.size(1),
              "batch1 and batch2 shapes cannot be multiplied (", batch1.sizes(), " and ",
              batch2.sizes(), ")");
  check_dtypes(batch1, batch2);
  check_dtypes(batch1, self);
  const Tensor at = indices_of_elements(batch1);
  const Tensor product =
      sparse_times_dense(at[0] * batch1.size(1) + at[1], at[0] * batch1.size(2) + at[2],
                         batch1.values().flatten(), batch1.size(0) * batch1.size(1),
                         batch2.reshape({-1, batch2.size(2)}))
          .view({batch1.size(0), batch1.size(1), batch2.size(2)});
  return set_result(out, scaled_sum(self, product, beta, alpha));
}

Tensor& bmm_out(const Tensor& self, const Tensor& mat2, Tensor& out) {
  return baddbmm_out(out, self, mat2, 0, 1, out);
}

// The elements of mat1 @ mat2 at which `self` has some.
Tensor sampled_addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                     const Scalar& alpha) {
  check_csr("sampled_addmm", self);
  TORCH_CHECK(mat1.layout() == at::kStrided && mat2.layout() == at::kStrided,
              "sampled_addmm: Expected mat1 and mat2 to have strided layout, but got ",
              mat1.layout(), " and ", mat2.layout());
  TORCH_CHECK(at::isFloatingType(self.scalar_type()) || at::isComplexType(self.scalar_type()),
              "sparse_sampled_addmm: Expected self to be a floating-point or complex tensor, but "
              "got ",
              self.scalar_type());
  TORCH_CHECK(self.scalar_type() == mat1.scalar_type() && self.scalar_type() == mat2.scalar_type(),
              "sampled_addmm: Expected self, mat1 and mat2 to have the same dtype, but got ",
              self.scalar_type(), ", ", mat1.scalar_type(), " and ", mat2.scalar_type());
  TORCH_CHECK(mat1.dim() >= 2 && mat2.dim() >= 2,
              "sampled_addmm: Expected mat1 and mat2 to be matrices, but got tensors of ",
              mat1.dim(), " and ", mat2.dim(), " dimensions");
  const at::IntArrayRef batch = self.sizes().slice(0, self.dim() - 2);
  TORCH_CHECK(mat1.sizes().slice(0, mat1.dim() - 2) == batch &&
                  mat2.sizes().slice(0, mat2.dim() - 2) == batch,
              "sampled_addmm: Expected self, mat1 and mat2 to have the same batch size");
  TORCH_CHECK(mat1.size(-1) == mat2.size(-2),
              "sampled_addmm: mat1 and mat2 shapes cannot be multiplied (", mat1.size(-2), "x",
              mat1.size(-1), " and ", mat2.size(-2), "x", mat2.size(-1), ")");
  TORCH_CHECK(mat1.size(-2) == self.size(-2) && mat2.size(-1) == self.size(-1),
              "sampled_addmm: Expected a product of size ", self.size(-2), "x", self.size(-1),
              ", but got ", mat1.size(-2), "x", mat2.size(-1));
  const Tensor indices = indices_of_elements(self);
  c10::List<std::optional<Tensor>> of_rows, of_columns;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (d != self.dim() - 1) {
      of_rows.push_back(indices[d]);
    }
    if (d != self.dim() - 2) {
      of_columns.push_back(indices[d]);
    }
  }
  const auto type = self.scalar_type();
  const auto sum_type = type_of_sums(type);
  const Tensor terms = at::index(mat1, of_rows).to(sum_type) *
                       at::index(mat2.transpose(-2, -1), of_columns).to(sum_type);
  const Tensor values = self.values();
  const Tensor product = terms.sum(-1).view(values.sizes());
  return at::_sparse_compressed_tensor_unsafe(
      self.crow_indices(), self.col_indices(),
      scaled_sum(values.to(sum_type), product, beta, alpha).to(type), self.sizes(), self.options());
}

Tensor& sampled_addmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2,
                          const Scalar& beta, const Scalar& alpha, Tensor& out) {
  check_csr("sampled_addmm", out);
  check_dtypes(self, out);
  return store(out, sampled_addmm(self, mat1, mat2, beta, alpha));
}

// ---- Sums

bool has_same_indices(const Tensor& a, const Tensor& b) {
  const auto [begins, plain] = at::sparse_csr::getCompressedPlainIndices(a);
  const auto [other_begins, other_plain] = at::sparse_csr::getCompressedPlainIndices(b);
  return begins.sizes() == other_begins.sizes() && plain.sizes() == other_plain.sizes() &&
         begins.equal(other_begins) && plain.equal(other_plain);
}

void check_same_structure(const Tensor& a, const Tensor& b) {
  const int64_t batches = at::sparse_csr::numBatchDimensions(a);
  TORCH_CHECK(batches == at::sparse_csr::numBatchDimensions(b) &&
                  a.values().sizes().slice(batches + 1) == b.values().sizes().slice(batches + 1),
              "add: expected both tensors to have the same number of batch dimensions and the same "
              "block size");
}

// The elements (or blocks) of any compressed tensor by batch, row and column; column and row where
// columns are what is compressed.
Tensor elements_as_coo(const Tensor& compressed) {
  const auto [begins, plain] = at::sparse_csr::getCompressedPlainIndices(compressed);
  const int64_t batches = at::sparse_csr::numBatchDimensions(compressed);
  const bool by_rows =
      compressed.layout() == at::kSparseCsr || compressed.layout() == at::kSparseBsr;
  const Tensor values = compressed.values().flatten(0, batches);
  at::DimVector sizes(begins.sizes());
  sizes.back() -= 1;
  int64_t across = compressed.size(batches + (by_rows ? 1 : 0));
  if (compressed.layout() == at::kSparseBsr || compressed.layout() == at::kSparseBsc) {
    across /= values.size(by_rows ? 2 : 1);
  }
  sizes.push_back(across);
  sizes.append(values.sizes().begin() + 1, values.sizes().end());
  return at::_sparse_coo_tensor_unsafe(at::_convert_indices_from_csr_to_coo(begins, plain), values,
                                       sizes, values.options().layout(at::kSparse));
}

// The way back, to a tensor of the layout and sizes of `like`.
Tensor compressed_elements(const Tensor& coo, const Tensor& like) {
  const Tensor elements = coo.coalesce();
  const Tensor indices = elements._indices();
  const int64_t batches = at::sparse_csr::numBatchDimensions(like);
  const int64_t rows = elements.size(batches);
  int64_t matrices = 1;
  Tensor row = indices[batches];
  for (int64_t d = batches - 1, step = rows; d >= 0; step *= elements.size(d), --d) {
    row = row + indices[d] * step;
    matrices *= elements.size(d);
  }
  // Where each row of all matrices begins.
  const Tensor begins = at::_convert_indices_from_coo_to_csr(row, matrices * rows);
  const Tensor of_matrices = begins.slice(0, 0, std::nullopt, rows);
  const int64_t count = elements._nnz() / matrices;
  TORCH_CHECK(matrices == 1 || of_matrices.diff().eq(count).all().item<bool>(),
              "Expect the same number of specified elements per batch.");
  at::DimVector sizes(like.sizes().slice(0, batches));
  sizes.push_back(rows + 1);
  const Tensor first = of_matrices.slice(0, 0, matrices).unsqueeze(1);
  const Tensor of_rows = begins.slice(0, 0, matrices * rows).view({matrices, rows}) - first;
  const Tensor compressed = at::constant_pad_nd(of_rows, {0, 1}, count).view(sizes);
  sizes.back() = count;
  const Tensor plain = indices[batches + 1].reshape(sizes);
  const auto [old_compressed, old_plain] = at::sparse_csr::getCompressedPlainIndices(like);
  const Tensor values = elements._values();
  return at::_sparse_compressed_tensor_unsafe(
      compressed.to(old_compressed.scalar_type()), plain.to(old_plain.scalar_type()),
      values.unflatten(0, sizes), like.sizes(), like.options().dtype(values.scalar_type()));
}

Tensor& add_out(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& out) {
  if (self.layout() == at::kStrided || other.layout() == at::kStrided) {
    TORCH_CHECK(out.layout() == at::kStrided,
                "add: the sum of a dense and a sparse tensor is dense, but the result has the "
                "layout ",
                out.layout());
  }
  if (self.layout() == at::kStrided) {
    return at::add_out(out, self, as_coo(other), alpha);
  }
  if (other.layout() == at::kStrided) {
    return at::add_out(out, other.mul(alpha), as_coo(self));
  }
  TORCH_CHECK(other.layout() == self.layout(), "add: expected both tensors to have the layout ",
              self.layout(), " but the second has ", other.layout());
  TORCH_CHECK(self.sizes() == other.sizes(),
              "torch.add: Expected input tensors to have the same shape, but got tensor `self` "
              "with shape ",
              self.sizes(), " and tensor `other` with shape ", other.sizes());
  const auto type = at::result_type(self, other);
  TORCH_CHECK(at::canCast(type, out.scalar_type()), "Can't convert result type ", type,
              " to output ", out.scalar_type(), " in add operation");
  check_same_structure(self, other);
  if (!has_same_indices(self, other)) {
    const Tensor sum = elements_as_coo(self).add(elements_as_coo(other), alpha);
    return store(out, compressed_elements(sum, self));
  }
  const auto [begins, plain] = at::sparse_csr::getCompressedPlainIndices(self);
  const Tensor sum =
      at::_sparse_compressed_tensor_unsafe(begins, plain, self.values().add(other.values(), alpha),
                                           self.sizes(), self.options().dtype(type));
  return store(out, sum);
}

TW_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("addmm.out", addmm_out);
  m.impl("addmv.out", addmv_out);
  m.impl("add.out", add_out);
  m.impl("baddbmm.out", baddbmm_out);
  m.impl("bmm.out", bmm_out);
  m.impl("sparse_sampled_addmm", sampled_addmm);
  m.impl("sparse_sampled_addmm.out", sampled_addmm_out);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
}

// A check of indices, on the CPU: it reads them anyway, and has PyTorch's messages.
void validate_indices(bool is_row, const Tensor& compressed, const Tensor& plain, int64_t size,
                      int64_t other_size, int64_t count) {
  at::_validate_compressed_sparse_indices(is_row, compressed.cpu(), plain.cpu(), size, other_size,
                                          count);
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_validate_compressed_sparse_indices", validate_indices);
}

} // namespace

Tensor indices_of_elements(const Tensor& csr) {
  return at::_convert_indices_from_csr_to_coo(csr.crow_indices(), csr.col_indices());
}

void check_csr(const char* op, const Tensor& tensor) {
  TORCH_CHECK(tensor.layout() == at::kSparseCsr, op,
              ": expected a tensor with the layout SparseCsr, but got ", tensor.layout());
}

// Rows of sorted indices -> where each row begins, and the end.
void structured__convert_indices_from_coo_to_csr_out::impl(const Tensor& self, int64_t size,
                                                           bool out_int32, const Tensor& result) {
  const Tensor rows = at::arange(size + 1, self.options());
  result.copy_(at::searchsorted(self.contiguous(), rows, out_int32));
}

void structured__convert_indices_from_csr_to_coo_out::impl(const Tensor& crow_indices,
                                                           const Tensor& col_indices,
                                                           bool /*out_int32*/, bool transpose,
                                                           const Tensor& result) {
  // Matrices of a batch have as many elements each.
  const int64_t rows = crow_indices.size(-1) - 1;
  const int64_t batches = crow_indices.numel() / (rows + 1);
  const Tensor begins = crow_indices.reshape({batches, rows + 1});
  const Tensor lengths = begins.diff().flatten();
  const Tensor row =
      at::arange(rows, crow_indices.options()).repeat(batches).repeat_interleave(lengths);
  const int64_t first = result.size(0) - 2;
  if (first > 0) {
    Tensor batch = at::arange(batches, crow_indices.options())
                       .repeat_interleave(begins.select(1, rows) - begins.select(1, 0));
    for (int64_t d = first - 1; d >= 0; --d) {
      result[d].copy_(batch.remainder(crow_indices.size(d)));
      batch = batch.floor_divide(crow_indices.size(d));
    }
  }
  result[first + (transpose ? 1 : 0)].copy_(row);
  result[first + (transpose ? 0 : 1)].copy_(col_indices.flatten());
}

} // namespace torch_webgpu
