// Householder reflectors: geqrf, linalg.qr, linalg.householder_product, ormqr.
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/conj_physical.h>
#include <ATen/ops/tril.h>

#include <algorithm>
#include <vector>

#include "backend/no_autocast.h"
#include "kernels/linalg_qr.h"
#include "kernels/linalg_reflectors.h"
#include "launch/stub.h"
#include "ops/linalg/linalg.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using at::native::geqrf_stub;
using at::native::orgqr_stub;
using at::native::ormqr_stub;

void factor_panel(const Tensor& a, const Tensor& tau) {
  const auto batches = static_cast<uint32_t>(a.size(0));
  kernels::linalg_qr::Launch launch("geqrf");
  launch.a(a).tau(tau);
  launch.run({.batches = batches,
              .rows = static_cast<uint32_t>(a.size(1)),
              .columns = static_cast<uint32_t>(a.size(2)),
              .count = static_cast<uint32_t>(tau.size(1)),
              .tau_batch = static_cast<uint32_t>(tau.stride(0)),
              .a_strides = matrix_strides(a)},
             launch.grid_of_groups(batches));
}

// The product of neighbouring reflectors H1 H2 ..., as I - V T V^H.
struct Block {
  Tensor v;
  Tensor t;
  int64_t first; // the row where V starts

  // From LAPACK's form: the vectors below the diagonal of `a`, which starts at V's first row.
  Block(const Tensor& a, const Tensor& tau, int64_t first_row) : first(first_row) {
    v = at::tril(a, -1);
    v.diagonal(0, -2, -1).fill_(1);
    t = at::bmm(v.mH(), v);
    const auto batches = static_cast<uint32_t>(t.size(0));
    kernels::linalg_reflectors::Launch launch("geqrf");
    launch.t(t).tau(tau).block(static_cast<uint32_t>(linalg_block(t.scalar_type())));
    launch.run({.batches = batches,
                .count = static_cast<uint32_t>(t.size(1)),
                .tau_batch = static_cast<uint32_t>(tau.stride(0)),
                .t_strides = matrix_strides(t)},
               launch.grid_of_groups(batches));
  }

  // Multiplies C from the left, in place, by the block or by the block's adjoint.
  void apply(const Tensor& c, bool adjoint) const {
    const Tensor products = at::bmm(v.mH(), c);
    subtract_product(c, v, at::bmm(adjoint ? t.mH() : t, products));
  }
};

// The blocks of all reflectors in `a` (batch x rows x columns), in order.
std::vector<Block> blocks_of(const Tensor& a, const Tensor& tau) {
  std::vector<Block> blocks;
  const int64_t count = tau.size(1);
  const int64_t block = linalg_block(a.scalar_type());
  for (int64_t begin = 0; begin < count; begin += block) {
    const int64_t width = std::min(block, count - begin);
    blocks.emplace_back(submatrix(a, begin, a.size(1) - begin, begin, width),
                        tau.narrow(1, begin, width), begin);
  }
  return blocks;
}

Tensor rows_of_batch(const Tensor& tau, int64_t batch) {
  return raw_values(tau).view({batch, tau.size(-1)});
}

void geqrf(const Tensor& input, const Tensor& tau_out) {
  const NoAutocast no_autocast;
  if (input.numel() == 0) {
    return;
  }
  if (!is_linalg_dtype(input.scalar_type())) {
    HostCopies host("aten::geqrf", input);
    call_on_cpu(geqrf_stub, host.in_out(input), host.in_out(tau_out));
    host.copy_back();
    return;
  }
  const Tensor a = matrices(input);
  const Tensor tau = rows_of_batch(tau_out, a.size(0));
  const int64_t m = a.size(1);
  const int64_t n = a.size(2);
  const int64_t block = linalg_block(a.scalar_type());
  for (int64_t begin = 0; begin < tau.size(1); begin += block) {
    const int64_t width = std::min(block, tau.size(1) - begin);
    const Tensor panel = submatrix(a, begin, m - begin, begin, width);
    const Tensor panel_tau = tau.narrow(1, begin, width);
    factor_panel(panel, panel_tau);
    const int64_t end = begin + width;
    if (end < n) {
      Block(panel, panel_tau, begin)
          .apply(submatrix(a, begin, m - begin, end, n - end), /*adjoint=*/true);
    }
  }
}

Tensor& orgqr(Tensor& result, const Tensor& tau_in) {
  const NoAutocast no_autocast;
  if (result.numel() == 0) {
    return result;
  }
  if (!is_linalg_dtype(result.scalar_type())) {
    HostCopies host("aten::linalg_householder_product", result);
    Tensor copy = host.in_out(result);
    call_on_cpu(orgqr_stub, copy, host.in(tau_in));
    host.copy_back();
    return result;
  }
  const Tensor q = matrices(result);
  const std::vector<Block> blocks = blocks_of(q, rows_of_batch(tau_in, q.size(0)));
  q.zero_();
  q.diagonal(0, -2, -1).fill_(1);
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    // The columns before `first` are still those of the identity.
    const int64_t first = block->first;
    block->apply(submatrix(q, first, q.size(1) - first, first, q.size(2) - first), false);
  }
  return result;
}

void ormqr(const Tensor& input, const Tensor& tau_in, const Tensor& other, bool left,
           bool transpose) {
  const NoAutocast no_autocast;
  if (other.numel() == 0 || tau_in.numel() == 0) {
    return;
  }
  if (!is_linalg_dtype(other.scalar_type())) {
    HostCopies host("aten::ormqr", other);
    call_on_cpu(ormqr_stub, host.in(input), host.in(tau_in), host.in_out(other), left, transpose);
    host.copy_back();
    return;
  }
  Tensor c = matrices(other);
  Tensor a = matrices(input);
  Tensor tau = rows_of_batch(tau_in, a.size(0));
  bool adjoint = transpose;
  if (!left) {
    // C Q is the transpose of (conj Q)^H C^T.
    c = c.mT();
    adjoint = !transpose;
    if (a.is_complex()) {
      a = at::conj_physical(a);
      tau = at::conj_physical(tau);
    }
  }
  std::vector<Block> blocks = blocks_of(a, tau);
  if (!adjoint) {
    std::reverse(blocks.begin(), blocks.end());
  }
  for (const Block& block : blocks) {
    block.apply(c.narrow(1, block.first, c.size(1) - block.first), adjoint);
  }
}

const RegisterStub<decltype(geqrf_stub)> register_geqrf(geqrf_stub, &geqrf);
const RegisterStub<decltype(orgqr_stub)> register_orgqr(orgqr_stub, &orgqr);
const RegisterStub<decltype(ormqr_stub)> register_ormqr(ormqr_stub, &ormqr);

} // namespace
} // namespace torch_webgpu
