// Linear algebra that a few tensor operations express: cross, renorm, _compute_linear_combination.
#include <ATen/TensorIterator.h>
#include <ATen/native/Cross.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_cross.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/renorm_ops.h>

#include "backend/fallback.h"
#include "backend/no_autocast.h"
#include "backend/registration.h"
#include "launch/stub.h"
#include "ops/pointwise/pointwise.h"
#include "structured_ops.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using namespace at::native;

void cross_webgpu(const Tensor& result, const Tensor& a, const Tensor& b, int64_t dim) {
  if (!native_dtype(result.scalar_type())) {
    note_fallback("aten::linalg_cross", result.scalar_type());
    result.copy_(at::linalg_cross(a.cpu(), b.cpu(), dim));
    return;
  }
  for (int64_t k = 0; k < 3; ++k) {
    const int64_t next = (k + 1) % 3;
    const int64_t last = (k + 2) % 3;
    // Both products in one kernel, so that half types round only their difference.
    auto iter = at::TensorIteratorConfig()
                    .add_owned_output(result.select(dim, k))
                    .add_owned_const_input(a.select(dim, next))
                    .add_owned_const_input(b.select(dim, last))
                    .add_owned_const_input(a.select(dim, last))
                    .add_owned_const_input(b.select(dim, next))
                    .resize_outputs(false)
                    .build();
    pointwise(iter, PointwiseOp::cross, *pointwise_types(iter, PointwiseOp::cross));
  }
}

const RegisterStub<decltype(cross_stub)> register_cross(cross_stub, &cross_webgpu);

// Row i of the result is the sum of the inputs, weighted with row i of the coefficients.
Tensor compute_linear_combination(const Tensor& input, const Tensor& coefficients) {
  const NoAutocast no_autocast;
  TORCH_CHECK(input.dim() > 0 && input.numel() > 0, "Empty tensor not supported");
  auto size = input.sizes().vec();
  size[0] = coefficients.size(0);
  // The coefficients of complex inputs are real.
  return at::mm(coefficients.to(input.scalar_type()), input.reshape({input.size(0), -1}))
      .reshape(size);
}

Tensor& compute_linear_combination_out(const Tensor& input, const Tensor& coefficients,
                                       Tensor& out) {
  return out.add_(compute_linear_combination(input, coefficients)); // the op accumulates
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_compute_linear_combination", TORCH_FN(compute_linear_combination));
  m.impl("_compute_linear_combination.out", TORCH_FN(compute_linear_combination_out));
}

} // namespace

void structured_renorm_out::impl(const Tensor& self, const at::Scalar& p, int64_t dim,
                                 const at::Scalar& maxnorm, const Tensor& out) {
  if (!native_dtype(self.scalar_type())) {
    call_cpu_fallback<at::_ops::renorm_out>::call(self, p, dim, maxnorm, const_cast<Tensor&>(out));
    return;
  }
  at::DimVector others;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (d != at::maybe_wrap_dim(dim, self.dim())) {
      others.push_back(d);
    }
  }
  const bool is_half = at::isReducedFloatingType(self.scalar_type());
  const Tensor norms = at::linalg_vector_norm(self, p, others, /*keepdim=*/true,
                                              is_half ? std::optional(at::kFloat) : std::nullopt);
  const Tensor factors = at::empty_like(norms);
  auto iter = at::TensorIteratorConfig().add_output(factors).add_const_input(norms).build();
  const auto types = pointwise_types(iter, PointwiseOp::renorm_scale_factor);
  pointwise(iter, PointwiseOp::renorm_scale_factor, *types, maxnorm);
  at::mul_out(const_cast<Tensor&>(out), self, factors);
}

} // namespace torch_webgpu
