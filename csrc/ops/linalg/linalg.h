// What the files of dense linear algebra share: batches of matrices, products, triangular solves.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace torch_webgpu {

/// Whether the kernels of this family compute in `type`: float32 and complex64.
bool is_linalg_dtype(at::ScalarType type);

/// Rows and columns of the blocks that one workgroup works on; the kernels' constant `block`.
/// Complex elements take twice the workgroup memory.
int64_t linalg_block(at::ScalarType type);

/// A view of the same memory without the lazy conjugate bit. ATen's stubs, like LAPACK, say by an
/// argument whether to conjugate.
at::Tensor raw_values(const at::Tensor& tensor);

/// All batch dimensions as one: batch x rows x columns over the same memory. Each matrix must be
/// contiguous, or the transpose of a contiguous one.
at::Tensor matrices(const at::Tensor& tensor);

/// The same for a tensor that is only read. Its batch dimensions are broadcast to those of
/// `batch_of`.
at::Tensor matrices_like(const at::Tensor& tensor, const at::Tensor& batch_of);

/// Rows and columns [row, row + rows) x [column, column + columns) of each matrix.
at::Tensor submatrix(const at::Tensor& m, int64_t row, int64_t rows, int64_t column,
                     int64_t columns);

/// Strides of batch, row and column, for a kernel's parameters.
std::array<uint32_t, 4> matrix_strides(const at::Tensor& m);

/// c -= a @ b, for batches of matrices. All three may lie in one buffer if they do not overlap.
void subtract_product(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b);

/// Which part of A a triangular solve reads, and how.
struct Triangle {
  bool upper = false;
  bool unit = false;      // the diagonal is taken to be 1
  bool conjugate = false; // A's elements are conjugated

  /// The same triangle, as a part of the transposed matrix.
  Triangle transposed() const { return {!upper, unit, conjugate}; }
};

/// B becomes the solution X of A X = B.
void solve_triangle(const at::Tensor& a, const at::Tensor& b, Triangle triangle);

/// CPU copies of a stub's tensors, for the dtypes that have no kernel here.
class HostCopies {
public:
  /// Counts the fallback, unless the CPU has no kernel either and will raise. `op` is the name of
  /// the native function.
  HostCopies(const char* op, const at::Tensor& tensor);
  at::Tensor in(const at::Tensor& tensor) const;
  at::Tensor in_out(const at::Tensor& tensor);
  void copy_back() const;

private:
  std::vector<std::pair<at::Tensor, at::Tensor>> written_; // on the device, on the host
};

} // namespace torch_webgpu
