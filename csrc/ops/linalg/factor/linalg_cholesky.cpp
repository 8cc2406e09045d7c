// The Cholesky factorization, and solves and inverses from the factor.
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/ops/_cholesky_solve_helper_ops.h>
#include <ATen/ops/conj_physical.h>

#include "backend/fallback.h"
#include "backend/registration.h"
#include "kernels/linalg_cholesky.h"
#include "launch/common.h"
#include "launch/stub.h"
#include "ops/linalg/linalg.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using at::native::cholesky_inverse_stub;
using at::native::cholesky_stub;

void factor_block(const Tensor& a, const Tensor& info, int64_t first) {
  const auto batches = static_cast<uint32_t>(a.size(0));
  kernels::linalg_cholesky::Launch launch("linalg_cholesky");
  launch.a(a).info(info).block(static_cast<uint32_t>(linalg_block(a.scalar_type())));
  launch.run({.batches = batches,
              .rows = static_cast<uint32_t>(a.size(1)),
              .first = static_cast<uint32_t>(first),
              .a_strides = matrix_strides(a)},
             launch.grid_of_groups(batches));
}

void cholesky(const Tensor& input, const Tensor& info, bool upper) {
  if (!is_linalg_dtype(input.scalar_type())) {
    HostCopies host("aten::linalg_cholesky_ex", input);
    call_on_cpu(cholesky_stub, host.in_out(input), host.in_out(info), upper);
    host.copy_back();
    return;
  }
  info.zero_();
  if (input.numel() == 0) {
    return;
  }
  // The transpose of the upper triangle of A is the lower triangle of A's conjugate. The transpose
  // of the factor U is the lower factor of that conjugate.
  const Tensor a = upper ? matrices(input).mT() : matrices(input);
  const int64_t n = a.size(1);
  const int64_t block = linalg_block(a.scalar_type());
  for (int64_t begin = 0; begin < n; begin += block) {
    const int64_t rows = std::min(block, n - begin);
    const Tensor diagonal = submatrix(a, begin, rows, begin, rows);
    factor_block(diagonal, info, begin);
    const int64_t end = begin + rows;
    if (end < n) {
      const Tensor below = submatrix(a, end, n - end, begin, rows);
      // X L^H = B, transposed
      solve_triangle(diagonal, below.mT(), {.conjugate = true});
      const Tensor panel = below.clone();
      const Tensor across = panel.is_complex() ? at::conj_physical(panel) : panel;
      subtract_product(submatrix(a, end, n - end, end, n - end), panel, across.mT());
    }
  }
}

// X in A X = B for A = L L^H, or U^H U.
void solve_by_factor(const Tensor& factor, const Tensor& b, bool upper) {
  const Triangle adjoint{.upper = !upper, .conjugate = true};
  if (upper) {
    solve_triangle(factor.mT(), b, adjoint);
    solve_triangle(factor, b, {.upper = true});
  } else {
    solve_triangle(factor, b, {});
    solve_triangle(factor.mT(), b, adjoint);
  }
}

Tensor& cholesky_inverse(Tensor& result, Tensor& infos, bool upper) {
  if (!is_linalg_dtype(result.scalar_type())) {
    HostCopies host("aten::cholesky_inverse", result);
    Tensor copy = host.in_out(result);
    call_on_cpu(cholesky_inverse_stub, copy, infos, upper);
    host.copy_back();
    return result;
  }
  if (result.numel() == 0) {
    return result;
  }
  const Tensor inverse = matrices(result);
  const Tensor factor = inverse.clone();
  inverse.zero_();
  inverse.diagonal(0, -2, -1).fill_(1);
  solve_by_factor(factor, inverse, upper);
  return result;
}

Tensor cholesky_solve_helper(const Tensor& self, const Tensor& a, bool upper) {
  check_same_device("_cholesky_solve_helper", {{self, "self"}, {a, "A"}});
  const at::ScalarType type = self.scalar_type();
  if (!is_linalg_dtype(type)) {
    // The error of the CPU's kernel, raised here so that no fallback is counted.
    TORCH_CHECK_NOT_IMPLEMENTED(type == at::kDouble || type == at::kComplexDouble,
                                "\"cholesky_solve_cpu\" not implemented for '", type, "'");
    return call_cpu_fallback<at::_ops::_cholesky_solve_helper>::call(self, a, upper);
  }
  const Tensor result = at::native::cloneBatchedColumnMajor(self);
  if (result.numel() != 0) {
    solve_by_factor(matrices_like(a.resolve_conj(), result), matrices(result), upper);
  }
  return result;
}

const RegisterStub<decltype(cholesky_stub)> register_cholesky(cholesky_stub, &cholesky);
const RegisterStub<decltype(cholesky_inverse_stub)> register_cholesky_inverse(cholesky_inverse_stub,
                                                                              &cholesky_inverse);

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_cholesky_solve_helper", TORCH_FN(cholesky_solve_helper));
}

} // namespace
} // namespace torch_webgpu
