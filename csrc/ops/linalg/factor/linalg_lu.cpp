// LU factors with partial pivoting: linalg.lu, lu_factor, lu_solve, and through ATen's
// implementations solve, inv, det and slogdet.
#include <ATen/TensorIterator.h>
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/native/TransposeType.h>

#include "backend/fallback.h"
#include "kernels/linalg_lu.h"
#include "kernels/linalg_row_swap.h"
#include "kernels/linalg_unpack_pivots.h"
#include "launch/stub.h"
#include "ops/linalg/linalg.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using at::native::lu_factor_stub;
using at::native::lu_solve_stub;
using at::native::TransposeType;
using at::native::unpack_pivots_stub;

void factor_panel(const Tensor& a, const Tensor& pivots, const Tensor& info, int64_t first,
                  bool pivot) {
  const auto batches = static_cast<uint32_t>(a.size(0));
  kernels::linalg_lu::Launch launch("linalg_lu_factor");
  launch.a(a).pivots(pivots).info(info);
  launch.block(static_cast<uint32_t>(linalg_block(a.scalar_type())));
  launch.run({.batches = batches,
              .rows = static_cast<uint32_t>(a.size(1)),
              .columns = static_cast<uint32_t>(a.size(2)),
              .first = static_cast<uint32_t>(first),
              .pivots_batch = static_cast<uint32_t>(pivots.stride(0)),
              .pivot = pivot,
              .a_strides = matrix_strides(a)},
             launch.grid_of_groups(batches));
}

// Interchanges rows of `b`. `pivots` (batch x count) gives, for each row from `first` on, the row
// to interchange it with, counted from 1.
void swap_rows(const Tensor& b, const Tensor& pivots, int64_t first, bool reverse) {
  if (b.numel() == 0) {
    return;
  }
  kernels::linalg_row_swap::Launch launch("linalg_row_swap");
  launch.b(b).pivots(pivots);
  launch.run({.batches = static_cast<uint32_t>(b.size(0)),
              .columns = static_cast<uint32_t>(b.size(2)),
              .count = static_cast<uint32_t>(pivots.size(1)),
              .reverse = reverse,
              .pivots_batch = static_cast<uint32_t>(pivots.stride(0)),
              .first = static_cast<uint32_t>(first),
              .b_strides = matrix_strides(b)},
             launch.grid_of(static_cast<uint64_t>(b.size(0) * b.size(2))));
}

void lu_factor(const Tensor& input, const Tensor& pivots, const Tensor& info, bool pivot) {
  if (!is_linalg_dtype(input.scalar_type())) {
    HostCopies host("aten::linalg_lu_factor_ex", input);
    call_on_cpu(lu_factor_stub, host.in_out(input), host.in_out(pivots), host.in_out(info), pivot);
    host.copy_back();
    return;
  }
  info.zero_();
  if (input.numel() == 0) {
    return;
  }
  const Tensor a = matrices(input);
  const int64_t m = a.size(1);
  const int64_t n = a.size(2);
  const int64_t k = std::min(m, n);
  const Tensor all_pivots = pivots.view({a.size(0), k});
  const int64_t block = linalg_block(a.scalar_type());
  for (int64_t begin = 0; begin < k; begin += block) {
    const int64_t width = std::min(block, k - begin);
    const int64_t end = begin + width;
    const Tensor panel_pivots = all_pivots.narrow(1, begin, width);
    factor_panel(submatrix(a, begin, m - begin, begin, width), panel_pivots, info, begin, pivot);
    if (pivot) {
      swap_rows(a.narrow(2, 0, begin), panel_pivots, begin, false);
      swap_rows(a.narrow(2, end, n - end), panel_pivots, begin, false);
    }
    if (end < n) {
      const Tensor right = submatrix(a, begin, width, end, n - end);
      solve_triangle(submatrix(a, begin, width, begin, width), right, {.unit = true});
      if (end < m) {
        subtract_product(submatrix(a, end, m - end, end, n - end),
                         submatrix(a, end, m - end, begin, width), right);
      }
    }
  }
}

void lu_solve(const Tensor& lu_in, const Tensor& pivots_in, const Tensor& b_in,
              TransposeType transpose) {
  if (b_in.numel() == 0) {
    return;
  }
  if (!is_linalg_dtype(b_in.scalar_type())) {
    HostCopies host("aten::linalg_lu_solve", b_in);
    call_on_cpu(lu_solve_stub, host.in(lu_in), host.in(pivots_in), host.in_out(b_in), transpose);
    host.copy_back();
    return;
  }
  const Tensor b = matrices(b_in);
  const Tensor lu = matrices_like(lu_in, b_in);
  const Tensor pivots = matrices_like(pivots_in.unsqueeze(-1), b_in).squeeze(-1);
  if (transpose == TransposeType::NoTranspose) {
    swap_rows(b, pivots, 0, false);
    solve_triangle(lu, b, {.unit = true});
    solve_triangle(lu, b, {.upper = true});
    return;
  }
  const bool conjugate = transpose == TransposeType::ConjTranspose;
  solve_triangle(lu.mT(), b, {.conjugate = conjugate});
  solve_triangle(lu.mT(), b, {.upper = true, .unit = true, .conjugate = conjugate});
  swap_rows(b, pivots, 0, true);
}

// The iterator runs over the batch dimensions; it does not include the last dimension.
void unpack_pivots(at::TensorIterator& iter, int64_t count, int64_t rows) {
  const int64_t batches = iter.numel();
  if (batches == 0 || count == 0) {
    return;
  }
  // Both operands are contiguous.
  const at::TensorBase& out = iter.tensor_base(0);
  const at::TensorBase& pivots = iter.tensor_base(1);
  kernels::linalg_unpack_pivots::Launch launch("lu_unpack");
  launch.out(out).pivots(pivots);
  launch.run({.batches = static_cast<uint32_t>(batches),
              .count = static_cast<uint32_t>(count),
              .pivots_batch = static_cast<uint32_t>(count),
              .out_batch = static_cast<uint32_t>(rows)},
             launch.grid_of(static_cast<uint64_t>(batches)));
}

const RegisterStub<decltype(lu_factor_stub)> register_lu_factor(lu_factor_stub, &lu_factor);
const RegisterStub<decltype(lu_solve_stub)> register_lu_solve(lu_solve_stub, &lu_solve);
const RegisterStub<decltype(unpack_pivots_stub)> register_unpack_pivots(unpack_pivots_stub,
                                                                        &unpack_pivots);

} // namespace
} // namespace torch_webgpu
