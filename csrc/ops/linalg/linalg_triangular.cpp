// Triangular solves: linalg.solve_triangular, triangular_solve, and what the factorizations need.
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/ops/conj_physical.h>

#include "kernels/linalg_triangular.h"
#include "launch/common.h"
#include "launch/stub.h"
#include "ops/linalg/linalg.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using at::native::TransposeType;
using at::native::triangular_solve_stub;

// Solves for a triangular matrix of at most linalg_block() rows.
void solve_block(const Tensor& a, const Tensor& b, Triangle triangle) {
  namespace kernel = kernels::linalg_triangular;
  const auto batches = static_cast<uint32_t>(b.size(0));
  const auto columns = static_cast<uint32_t>(b.size(2));
  const uint32_t column_groups = (columns + kernel::kWorkgroup - 1) / kernel::kWorkgroup;
  kernel::Launch launch("triangular_solve");
  launch.b(b).a(a).block(static_cast<uint32_t>(linalg_block(b.scalar_type())));
  launch.run({.batches = batches,
              .rows = static_cast<uint32_t>(b.size(1)),
              .columns = columns,
              .column_groups = column_groups,
              .upper = triangle.upper,
              .unit = triangle.unit,
              .conjugate = triangle.conjugate,
              .a_strides = matrix_strides(a),
              .b_strides = matrix_strides(b)},
             launch.grid_of_groups(uint64_t{batches} * column_groups));
}

// The stub's arguments describe memory in column-major order, as LAPACK reads it. In row-major
// memory that is the transposed matrix.
Tensor in_columns(const Tensor& m) { return matrices(m.mT().is_contiguous() ? m : m.mT()); }

void triangular_solve(const Tensor& a_in, const Tensor& b_in, bool left, bool upper,
                      TransposeType transpose, bool unit) {
  check_dtype(b_in, a_in.scalar_type());
  if (b_in.numel() == 0) {
    return;
  }
  if (!is_linalg_dtype(b_in.scalar_type())) {
    HostCopies host("aten::linalg_solve_triangular", b_in);
    call_on_cpu(triangular_solve_stub, host.in(a_in), host.in_out(b_in), left, upper, transpose,
                unit);
    host.copy_back();
    return;
  }
  Tensor a = in_columns(a_in);
  Tensor b = in_columns(b_in);
  Triangle triangle{upper, unit, transpose == TransposeType::ConjTranspose};
  // X A = B is solved as its transpose, A^T X^T = B^T.
  if (!left) {
    b = b.mT();
  }
  if (left != (transpose == TransposeType::NoTranspose)) {
    a = a.mT();
    triangle = triangle.transposed();
  }
  solve_triangle(a, b, triangle);
}

const RegisterStub<decltype(triangular_solve_stub)> register_triangular_solve(triangular_solve_stub,
                                                                              &triangular_solve);

} // namespace

void solve_triangle(const Tensor& a, const Tensor& b, Triangle triangle) {
  const int64_t n = b.size(1);
  const int64_t block = linalg_block(b.scalar_type());
  const int64_t blocks = (n + block - 1) / block;
  for (int64_t step = 0; step < blocks; ++step) {
    const int64_t begin = block * (triangle.upper ? blocks - 1 - step : step);
    const int64_t end = std::min(begin + block, n);
    const Tensor solved = b.narrow(1, begin, end - begin);
    solve_block(submatrix(a, begin, end - begin, begin, end - begin), solved, triangle);
    // The remaining rows, above or below the block.
    const int64_t rest_begin = triangle.upper ? 0 : end;
    const int64_t rest = triangle.upper ? begin : n - end;
    if (rest > 0) {
      Tensor factor = submatrix(a, rest_begin, rest, begin, end - begin);
      if (triangle.conjugate && factor.is_complex()) {
        factor = at::conj_physical(factor);
      }
      subtract_product(b.narrow(1, rest_begin, rest), factor, solved);
    }
  }
}

} // namespace torch_webgpu
