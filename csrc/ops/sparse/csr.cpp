// Kernels of compressed sparse tensors that ATen has for CPU and CUDA apart.
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_validate_compressed_sparse_indices.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>

#include "ops/sparse/sparse.h"
#include "structured_ops.h"

namespace torch_webgpu {
namespace {

using at::Scalar;
using at::Tensor;

// Any layout of a matrix as COO.
Tensor as_coo(const Tensor& matrix) { return matrix.to_sparse(); }

bool is_compressed(const Tensor& tensor) { return at::sparse_csr::is_sparse_compressed(tensor); }

// Stores a COO result in a compressed tensor.
Tensor& compress_into(Tensor& out, const Tensor& result) {
  const Tensor compressed = result.coalesce().to_sparse(out.layout());
  out.resize_as_sparse_(compressed);
  return out.copy_(compressed);
}

Tensor& addmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                  const Scalar& alpha, Tensor& out) {
  TORCH_CHECK(mat1.dim() == 2 && mat2.dim() == 2, "addmm: expected matrices, but got tensors of ",
              mat1.dim(), " and ", mat2.dim(), " dimensions");
  TORCH_CHECK(mat1.size(1) == mat2.size(0), "mat1 and mat2 shapes cannot be multiplied (",
              mat1.size(0), "x", mat1.size(1), " and ", mat2.size(0), "x", mat2.size(1), ")");
  check_dtypes(mat1, mat2);
  check_dtypes(mat1, self);
  if (is_compressed(out)) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        mat1.layout() != at::kStrided && mat2.layout() != at::kStrided,
        "addmm: a compressed result of a dense matrix is not supported on webgpu");
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

bool has_same_indices(const Tensor& a, const Tensor& b) {
  const auto [begins, plain] = at::sparse_csr::getCompressedPlainIndices(a);
  const auto [other_begins, other_plain] = at::sparse_csr::getCompressedPlainIndices(b);
  return begins.sizes() == other_begins.sizes() && plain.sizes() == other_plain.sizes() &&
         begins.equal(other_begins) && plain.equal(other_plain);
}

Tensor& add_out(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& out) {
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
  if (self.dim() == 2) {
    return compress_into(out, as_coo(self).add(as_coo(other), alpha));
  }
  // COO has no batches.
  TORCH_CHECK_NOT_IMPLEMENTED(has_same_indices(self, other),
                              "add: sums of batches, or with dense dimensions, of compressed "
                              "tensors with different indices are not supported on webgpu");
  const auto [begins, plain] = at::sparse_csr::getCompressedPlainIndices(self);
  const Tensor sum =
      at::_sparse_compressed_tensor_unsafe(begins, plain, self.values().add(other.values(), alpha),
                                           self.sizes(), self.options().dtype(type));
  out.resize_as_sparse_(sum);
  return out.copy_(sum);
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("addmm.out", addmm_out);
  m.impl("addmv.out", addmv_out);
  m.impl("add.out", add_out);
}

// A check of indices, on the CPU: it reads them anyway, and has PyTorch's messages.
void validate_indices(bool is_row, const Tensor& compressed, const Tensor& plain, int64_t size,
                      int64_t other_size, int64_t count) {
  at::_validate_compressed_sparse_indices(is_row, compressed.cpu(), plain.cpu(), size, other_size,
                                          count);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_validate_compressed_sparse_indices", validate_indices);
}

} // namespace

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
