// LU factors with partial pivoting: linalg.lu, lu_factor, lu_solve, and through ATen's
// implementations solve, inv, det and slogdet.
#include <ATen/TensorIterator.h>
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/native/TransposeType.h>

#include "backend/fallback.h"
#include "launch/dtypes.h"
#include "ops/linalg/linalg.h"
#include "launch/stub.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using at::native::lu_factor_stub;
using at::native::lu_solve_stub;
using at::native::TransposeType;
using at::native::unpack_pivots_stub;

constexpr PipelineFamily kLu = PipelineFamily::kLu;
constexpr PipelineFamily kRowSwap = PipelineFamily::kRowSwap;
constexpr PipelineFamily kUnpackPivots = PipelineFamily::kUnpackPivots;

// Mirrors Params of linalg_lu.wgsl.
struct LuParams {
  uint32_t batches;
  uint32_t rows;
  uint32_t columns;
  uint32_t first;
  std::array<uint32_t, 4> a;
  uint32_t pivots_offset;
  uint32_t pivots_batch;
  uint32_t info_offset;
  uint32_t pivot;
};

// Mirrors Params of linalg_row_swap.wgsl.
struct SwapParams {
  uint32_t batches;
  uint32_t columns;
  uint32_t count;
  uint32_t reverse;
  std::array<uint32_t, 4> b;
  uint32_t pivots_offset;
  uint32_t pivots_batch;
  uint32_t first;
  uint32_t unused = 0;
};

// Mirrors Params of linalg_unpack_pivots.wgsl.
struct UnpackParams {
  uint32_t batches;
  uint32_t count;
  uint32_t pivots_offset;
  uint32_t pivots_batch;
  uint32_t out_offset;
  uint32_t out_batch;
  uint32_t unused[2] = {};
};

uint32_t word_offset(const at::TensorBase& tensor) {
  return static_cast<uint32_t>(byte_offset(tensor) / tensor.itemsize());
}

void factor_panel(const Tensor& a, const Tensor& pivots, const Tensor& info, int64_t first,
                  bool pivot) {
  const LuParams params = {static_cast<uint32_t>(a.size(0)),
                           static_cast<uint32_t>(a.size(1)),
                           static_cast<uint32_t>(a.size(2)),
                           static_cast<uint32_t>(first),
                           matrix_words(a),
                           word_offset(pivots),
                           static_cast<uint32_t>(pivots.stride(0)),
                           word_offset(info),
                           pivot};
  KernelCall call("linalg_lu_factor", "linalg_lu");
  call.add_output("a", a, *native_dtype(a.scalar_type()));
  call.add_output("pivots", pivots, DType::kI32);
  call.add_output("info", info, DType::kI32);
  call.run_groups({kLu, 0, 0}, params,
                  context().stream.grid_1d(static_cast<uint64_t>(a.size(0)), 1),
                  [&] { return linalg_hooks(a.scalar_type()); });
}

// `pivots` (batch x count) says which row, counted from 1, each row from `first` on changes with.
void swap_rows(const Tensor& b, const Tensor& pivots, int64_t first, bool reverse) {
  if (b.numel() == 0) {
    return;
  }
  const SwapParams params = {static_cast<uint32_t>(b.size(0)),
                             static_cast<uint32_t>(b.size(2)),
                             static_cast<uint32_t>(pivots.size(1)),
                             reverse,
                             matrix_words(b),
                             word_offset(pivots),
                             static_cast<uint32_t>(pivots.stride(0)),
                             static_cast<uint32_t>(first)};
  KernelCall call("linalg_row_swap", "linalg_row_swap");
  call.add_output("b", b, *native_dtype(b.scalar_type()));
  call.add_input("pivots", pivots, DType::kI32);
  call.run({kRowSwap, 0, 0}, params, static_cast<uint64_t>(b.size(0) * b.size(2)),
           [] { return KernelCall::Hooks{}; });
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

// The iterator runs over the batch, the last dimension having been taken out of it.
void unpack_pivots(at::TensorIterator& iter, int64_t count, int64_t rows) {
  const int64_t batches = iter.numel();
  if (batches == 0 || count == 0) {
    return;
  }
  // Both operands are contiguous.
  const at::TensorBase& out = iter.tensor_base(0);
  const at::TensorBase& pivots = iter.tensor_base(1);
  const UnpackParams params = {static_cast<uint32_t>(batches),
                               static_cast<uint32_t>(count),
                               word_offset(pivots),
                               static_cast<uint32_t>(count),
                               word_offset(out),
                               static_cast<uint32_t>(rows)};
  KernelCall call("lu_unpack", "linalg_unpack_pivots");
  call.add_output("out", out, DType::kI64);
  call.add_input("pivots", pivots, DType::kI32);
  call.run({kUnpackPivots, 0, 0}, params, static_cast<uint64_t>(batches),
           [] { return KernelCall::Hooks{}; });
}

const RegisterStub<decltype(lu_factor_stub)> register_lu_factor(lu_factor_stub, &lu_factor);
const RegisterStub<decltype(lu_solve_stub)> register_lu_solve(lu_solve_stub, &lu_solve);
const RegisterStub<decltype(unpack_pivots_stub)> register_unpack_pivots(unpack_pivots_stub,
                                                                        &unpack_pivots);

} // namespace
} // namespace torch_webgpu
