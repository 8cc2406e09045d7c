// What kernels of both sparse layouts share.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_webgpu {

/// The product of a sparse matrix of `count` rows, whose element values[n] stands at rows[n] and
/// columns[n], with a dense one, [count, dense.size(1)]. Elements at one place add up. Sums of
/// halves are float32.
at::Tensor sparse_times_dense(const at::Tensor& rows, const at::Tensor& columns,
                              const at::Tensor& values, int64_t count, const at::Tensor& dense);

/// beta * self + alpha * product, where `self` expands to the product's shape, and is not read if
/// beta is 0.
at::Tensor scaled_sum(const at::Tensor& self, const at::Tensor& product, const at::Scalar& beta,
                      const at::Scalar& alpha);

/// Raises if the operands of a product have different dtypes.
void check_dtypes(const at::Tensor& one, const at::Tensor& other);

/// Stores a dense result in `out`, which has to be dense and of the same dtype.
at::Tensor& set_result(at::Tensor& out, const at::Tensor& result);

/// The dtype that sums are computed in: float32 for halves.
inline at::ScalarType type_of_sums(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

/// Rows of indices for all elements of a CSR tensor: the batch dimensions, the row, the column.
at::Tensor indices_of_elements(const at::Tensor& csr);

/// Raises for tensors of another layout.
void check_csr(const char* op, const at::Tensor& tensor);

} // namespace torch_webgpu
