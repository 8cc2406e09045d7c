// Singular values and eigenvalues of Hermitian matrices, both by one-sided Jacobi rotations:
// linalg.svd and linalg.eigh, and through ATen's implementations pinv, matrix_rank, cond, the
// nuclear norm and the like.
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_pinv_native.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/real.h>
#include <ATen/ops/sgn.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/no_autocast.h"
#include "backend/registration.h"
#include "kernels/linalg_jacobi.h"
#include "launch/common.h"
#include "launch/stub.h"
#include "ops/linalg/linalg.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using at::native::linalg_eigh_stub;
using at::native::svd_stub;

namespace kernel = kernels::linalg_jacobi;

constexpr uint32_t kTeam = 32; // invocations per pair of columns

void rotate(const Tensor& w, const Tensor& rotations, const kernel::Params& params) {
  kernel::Launch launch("linalg_jacobi");
  launch.w(w).rotations(rotations).team(kTeam);
  launch.run(params, launch.grid_of_groups(uint64_t{params.batches} * params.groups));
}

// Unitary V for which the columns of A V are orthogonal, for batches of square matrices whose
// elements are at most about 1. `rotations` (int32) has an element for each matrix: not zero if its
// rotations have not converged after kMaxSweeps sweeps.
Tensor orthogonalize(const Tensor& a, const Tensor& rotations) {
  constexpr int kMaxSweeps = 40;                         // more than ten are rare
  constexpr int64_t kTeams = kernel::kWorkgroup / kTeam; // pairs that a workgroup takes
  constexpr int64_t kOneGroup = 32;
  const int64_t batches = a.size(0);
  const int64_t n = a.size(2);
  const Tensor identity = at::eye(n, a.options()).expand({batches, n, n});
  if (n == 1) {
    return identity;
  }
  const Tensor w = at::cat({a.mT(), identity}, 2);
  kernel::Params params{.batches = static_cast<uint32_t>(batches),
                        .columns = static_cast<uint32_t>(n),
                        .tolerance = std::sqrt(static_cast<float>(n)) *
                                     std::numeric_limits<float>::epsilon()};
  const int64_t pairs = (n + 1) / 2;
  const auto rounds = static_cast<uint32_t>(2 * pairs - 1);
  const bool one_group = pairs <= kOneGroup;
  params.groups = one_group ? 1 : static_cast<uint32_t>((pairs + kTeams - 1) / kTeams);
  params.rounds = one_group ? rounds : 1;
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    rotations.zero_();
    for (params.first_round = 0; params.first_round < rounds; params.first_round += params.rounds) {
      rotate(w, rotations, params);
    }
    if (!rotations.any().item<bool>()) {
      break;
    }
  }
  // After thousands of rotations, V is not exactly unitary. A step of Newton's iteration for the
  // polar factor corrects that.
  const Tensor v = w.narrow(2, n, n).mT();
  return at::baddbmm(v, v, at::bmm(v.mH(), v), /*beta=*/1.5, /*alpha=*/-0.5);
}

// Matrices divided by their largest elements, so that squares stay in range.
struct Scaled {
  Tensor values;
  Tensor scale;  // batch x 1 x 1, real
  Tensor finite; // likewise
};

Scaled scale(const Tensor& a) {
  const Tensor largest = a.abs().amax({1, 2}, /*keepdim=*/true);
  const Tensor finite = at::isfinite(largest);
  const Tensor scale = largest.masked_fill(finite.logical_not(), 1).masked_fill(largest.eq(0), 1);
  return {a.masked_fill(finite.logical_not(), 0).div(scale), scale, finite};
}

Tensor rotations_of(const Tensor& a) { return at::zeros({a.size(0)}, a.options().dtype(at::kInt)); }

// Sets `info` as ATen expects it from LAPACK: not zero for matrices that have failed.
void report(const Tensor& info, const Scaled& input, const Tensor& rotations, int32_t not_finite) {
  info.copy_(rotations.ne(0).view(info.sizes()));
  info.masked_fill_(input.finite.view(info.sizes()).logical_not(), not_finite);
}

// The columns of batches of matrices in another order (batch x column).
Tensor reorder(const Tensor& columns, const Tensor& order) {
  return columns.gather(2, order.unsqueeze(1).expand(columns.sizes()));
}

// Singular values and vectors of matrices with no more columns than rows.
struct Svd {
  Tensor u, s, v;

  Svd(const Tensor& a, bool full_matrices, bool with_vectors, const Tensor& info) {
    const int64_t n = a.size(2);
    const Scaled input = scale(a);
    Tensor square = input.values;
    Tensor q;
    if (a.size(1) > n) {
      std::tie(q, square) =
          at::linalg_qr(square, !with_vectors ? "r" : (full_matrices ? "complete" : "reduced"));
      square = square.narrow(1, 0, n);
    }
    const Tensor rotations = rotations_of(square);
    v = orthogonalize(square, rotations);
    report(info, input, rotations, /*not_finite=*/-4);
    const Tensor products = at::bmm(square, v);
    const auto [lengths, order] = at::linalg_vector_norm(products, 2, at::IntArrayRef{1})
                                      .sort(/*dim=*/1, /*descending=*/true);
    s = lengths.mul(input.scale.squeeze(2));
    if (!with_vectors) {
      return;
    }
    v = reorder(v, order);
    // The columns are orthogonal, so R is diagonal. Q has orthonormal vectors even where columns
    // are zero.
    const auto [directions, r] = at::linalg_qr(reorder(products, order));
    const Tensor diagonal = r.diagonal(0, 1, 2);
    const Tensor phase = diagonal.sgn().masked_fill(diagonal.eq(0), 1);
    u = directions.mul(phase.unsqueeze(1));
    if (q.defined()) {
      const Tensor first = at::bmm(q.narrow(2, 0, n), u);
      u = full_matrices ? at::cat({first, q.narrow(2, n, q.size(2) - n)}, 2) : first;
    }
  }
};

void svd(const Tensor& input, bool full_matrices, bool compute_uv,
         const std::optional<std::string_view>& driver, const Tensor& u, const Tensor& s,
         const Tensor& vh, const Tensor& info) {
  const NoAutocast no_autocast;
  if (!is_linalg_dtype(input.scalar_type())) {
    HostCopies host("aten::_linalg_svd", input);
    call_on_cpu(svd_stub, host.in(input.resolve_conj()), full_matrices, compute_uv, driver,
                host.in_out(u), host.in_out(s), host.in_out(vh), host.in_out(info));
    host.copy_back();
    return;
  }
  const int64_t m = input.size(-2);
  const int64_t n = input.size(-1);
  const Tensor a = input.resolve_conj().reshape({-1, m, n});
  const bool wide = m < n;
  const Svd result(wide ? a.mH() : a, full_matrices, compute_uv, info);
  s.copy_(result.s.view(s.sizes()));
  if (compute_uv) {
    u.copy_((wide ? result.v : result.u).view(u.sizes()));
    vh.copy_((wide ? result.u : result.v).mH().reshape(vh.sizes()));
  }
}

// The Hermitian matrix that one triangle of `a` and the real part of its diagonal define.
Tensor hermitian(const Tensor& a, bool upper) {
  const Tensor below = at::tril(upper ? a.mH() : a, -1);
  Tensor whole = below.add(below.mH());
  const Tensor diagonal = a.diagonal(0, -2, -1);
  whole.diagonal(0, -2, -1).copy_(a.is_complex() ? at::real(diagonal) : diagonal);
  return whole;
}

// A + bound I. Singular values do not distinguish eigenvalues that differ only in sign. Adding a
// bound on their size to all eigenvalues makes them positive, so that eigenvalues of opposite sign
// become different.
Tensor add_to_diagonal(const Tensor& a, const Tensor& bound) {
  Tensor sum = a.clone();
  sum.diagonal(0, 1, 2).add_(bound.unsqueeze(1));
  return sum;
}

// The eigenvalues of Hermitian A from its eigenvectors, the columns of V.
Tensor rayleigh_quotients(const Tensor& a, const Tensor& v) {
  const Tensor products = v.conj().mul(at::bmm(a, v));
  return (a.is_complex() ? at::real(products) : products).sum(1);
}

void eigh(const Tensor& values, const Tensor& vectors, const Tensor& info, bool upper,
          bool compute_vectors) {
  const NoAutocast no_autocast;
  if (!is_linalg_dtype(vectors.scalar_type())) {
    HostCopies host("aten::_linalg_eigh", vectors);
    call_on_cpu(linalg_eigh_stub, host.in_out(values), host.in_out(vectors), host.in_out(info),
                upper, compute_vectors);
    host.copy_back();
    return;
  }
  const int64_t n = vectors.size(-1);
  const Scaled input = scale(hermitian(raw_values(vectors).reshape({-1, n, n}), upper));
  const Tensor& a = input.values;
  const Tensor size = a.abs();
  const Tensor bound =
      at::minimum(size.sum(2).amax(1), at::linalg_vector_norm(size, 2, at::IntArrayRef{1, 2}));
  const Tensor rotations = rotations_of(a);
  Tensor v = orthogonalize(add_to_diagonal(a, bound), rotations);
  // The rounding errors so far are relative to the bound, which may be much larger than the
  // eigenvalues. A few more rotations with a closer bound reduce these errors.
  const Tensor largest = rayleigh_quotients(a, v).abs().amax(1);
  v = at::bmm(v, orthogonalize(at::bmm(add_to_diagonal(a, largest.mul(1.0625)), v), rotations));
  report(info, input, rotations, /*not_finite=*/1);
  const auto [sorted, order] = rayleigh_quotients(a, v).sort(/*dim=*/1);
  values.copy_(sorted.mul(input.scale.squeeze(2)).view(values.sizes()));
  if (compute_vectors) {
    raw_values(vectors).copy_(reorder(v, order).view(vectors.sizes()));
  }
}

// ATen's implementation makes float64 tolerances on every device but MPS. Here the tolerances have
// the dtype of the singular values.
Tensor pinv(const Tensor& self, const std::optional<Tensor>& atol,
            const std::optional<Tensor>& rtol, bool hermitian) {
  if (!is_linalg_dtype(self.scalar_type()) || self.dim() < 2) {
    return at::native::linalg_pinv(self, atol, rtol, hermitian);
  }
  check_same_device("linalg_pinv", {{self, "self"}});
  const auto options = self.options().dtype(at::kFloat);
  const auto tolerance = [&](const std::optional<Tensor>& given, double otherwise) {
    if (!given.has_value() || !given->defined()) {
      return at::full({}, otherwise, options);
    }
    return given->is_complex() ? *given : given->to(at::kFloat); // complex ones are refused
  };
  const Tensor absolute = tolerance(atol, 0.0);
  const double default_rtol = std::numeric_limits<float>::epsilon() *
                              static_cast<double>(std::max(self.size(-1), self.size(-2)));
  Tensor relative = tolerance(rtol, default_rtol);
  if (atol.has_value() && !rtol.has_value() && !absolute.is_complex()) {
    relative = at::where(absolute.gt(0), 0.0, relative);
  }
  return at::native::linalg_pinv(self, absolute, relative, hermitian);
}

const RegisterStub<decltype(svd_stub)> register_svd(svd_stub, &svd);
const RegisterStub<decltype(linalg_eigh_stub)> register_eigh(linalg_eigh_stub, &eigh);

TW_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("linalg_pinv.atol_rtol_tensor", TORCH_FN(pinv)); }

} // namespace
} // namespace torch_webgpu
