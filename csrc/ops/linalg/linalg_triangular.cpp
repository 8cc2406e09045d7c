// Triangular solves: linalg.solve_triangular, triangular_solve, and what the factorizations need.
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/ops/conj_physical.h>

#include "launch/dtypes.h"
#include "ops/linalg/linalg.h"
#include "launch/stub.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using at::native::TransposeType;
using at::native::triangular_solve_stub;

constexpr PipelineFamily kTriangular = PipelineFamily::kTriangularSolve;
constexpr int64_t kLanes = 64; // of linalg_triangular.wgsl

// Mirrors Params of linalg_triangular.wgsl.
struct Params {
  uint32_t batches;
  uint32_t rows;
  uint32_t columns;
  uint32_t column_groups;
  std::array<uint32_t, 4> a;
  std::array<uint32_t, 4> b;
  uint32_t upper;
  uint32_t unit;
  uint32_t conjugate;
  uint32_t unused = 0;
};

// Of at most a block of rows.
void solve_block(const Tensor& a, const Tensor& b, Triangle triangle) {
  const int64_t column_groups = (b.size(2) + kLanes - 1) / kLanes;
  const Params params = {static_cast<uint32_t>(b.size(0)),
                         static_cast<uint32_t>(b.size(1)),
                         static_cast<uint32_t>(b.size(2)),
                         static_cast<uint32_t>(column_groups),
                         matrix_words(a),
                         matrix_words(b),
                         triangle.upper,
                         triangle.unit,
                         triangle.conjugate};
  const DType dtype = *native_dtype(b.scalar_type());
  KernelCall call("triangular_solve", "linalg_triangular");
  call.add_output("b", b, dtype);
  call.add_input("a", a, dtype);
  call.run_groups({kTriangular, 0, 0}, params,
                  context().stream.grid_1d(static_cast<uint64_t>(b.size(0) * column_groups), 1),
                  [&] { return linalg_hooks(b.scalar_type()); });
}

// The stub's arguments describe memory as LAPACK reads it, column after column: where rows lie
// together, it holds the transposed matrix.
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
  // X A = B is the transposed A^T X^T = B^T.
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
    // What remains: the rows above or below.
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
