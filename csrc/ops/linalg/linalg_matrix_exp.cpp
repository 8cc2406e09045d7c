// The exponential of matrices, by products only. (ATen's own implementation keeps its coefficients
// on the CPU for every device but CUDA.)
#include <ATen/TensorOperators.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/ceil.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp2.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/linalg_matrix_exp_ops.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/max.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <array>

#include "backend/fallback.h"
#include "backend/no_autocast.h"
#include "backend/registration.h"
#include "ops/linalg/linalg.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

// The Taylor polynomial of this degree has float32's accuracy for matrices of 1-norms up to the
// limit (Bader, Blanes, Casas: Computing the matrix exponential with an optimized Taylor polynomial
// approximation, 2019).
constexpr int kDegree = 18;
constexpr double kLimit = 3.010066362817634;

// The sum of A^k / k!, by Horner's scheme in A^4: its coefficients are cubic polynomials in A.
Tensor taylor(const Tensor& a) {
  std::array<double, kDegree + 1> coefficients = {1};
  for (int k = 1; k <= kDegree; ++k) {
    coefficients[k] = coefficients[k - 1] / k;
  }
  const Tensor a2 = at::bmm(a, a);
  const Tensor a3 = at::bmm(a2, a);
  const Tensor a4 = at::bmm(a2, a2);
  Tensor sum = at::zeros_like(a);
  for (int k = kDegree / 4 * 4; k >= 0; k -= 4) {
    const auto coefficient = [&](int i) { return i <= kDegree ? coefficients[i] : 0.0; };
    sum.add_(a3, coefficient(k + 3)).add_(a2, coefficient(k + 2)).add_(a, coefficient(k + 1));
    sum.diagonal(0, -2, -1).add_(coefficient(k));
    if (k > 0) {
      sum = at::bmm(a4, sum);
    }
  }
  return sum;
}

Tensor matrix_exp(const Tensor& self) {
  const NoAutocast no_autocast;
  at::native::squareCheckInputs(self, "linalg.matrix_exp");
  at::native::checkFloatingOrComplex(self, "linalg.matrix_exp");
  const at::ScalarType type = self.scalar_type();
  const bool is_half = at::isReducedFloatingType(type);
  if (!is_half && !is_linalg_dtype(type)) {
    return call_cpu_fallback<at::_ops::linalg_matrix_exp>::call(self);
  }
  if (self.numel() == 0) {
    return at::empty_like(self, at::MemoryFormat::Contiguous);
  }
  const int64_t n = self.size(-1);
  if (n == 1) {
    return self.exp();
  }
  Tensor a = self.reshape({-1, n, n});
  if (is_half) {
    a = a.to(at::kFloat);
  }
  // exp(A) = exp(A / 2^s)^(2^s), with the s that each matrix needs.
  const Tensor norms = at::amax(at::sum(at::abs(a), {-2}), {-1}).view({-1, 1, 1});
  const Tensor halvings =
      at::nan_to_num(at::ceil(at::log2(norms / kLimit)), 0.0, 0.0, 0.0).clamp_min_(0);
  Tensor result = taylor(a * at::exp2(-halvings));
  const auto most = static_cast<int64_t>(halvings.max().item<float>());
  for (int64_t step = 0; step < most; ++step) {
    const Tensor squared = at::bmm(result, result);
    result = a.size(0) == 1 ? squared : at::where(at::gt(halvings, step), squared, result);
  }
  return result.view(self.sizes()).to(type);
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("linalg_matrix_exp", TORCH_FN(matrix_exp)); }

} // namespace
} // namespace torch_webgpu
