// Gradients of gamma and Dirichlet numbers with respect to their parameters.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_dirichlet_grad_ops.h>
#include <ATen/ops/_standard_gamma_grad_ops.h>

#include "backend/fallback.h"
#include "backend/registration.h"
#include "launch/common.h"
#include "ops/pointwise/pointwise.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

Tensor standard_gamma_grad(const Tensor& self, const Tensor& output) {
  check_same_device("_standard_gamma_grad", {{self, "self"}, {output, "output"}});
  Tensor result;
  if (!run_pointwise(PointwiseOp::standard_gamma_grad, result, {self, output})) {
    return call_cpu_fallback<at::_ops::_standard_gamma_grad>::call(self, output);
  }
  return result;
}

Tensor dirichlet_grad(const Tensor& x, const Tensor& alpha, const Tensor& total) {
  check_same_device("_dirichlet_grad", {{x, "x"}, {alpha, "alpha"}, {total, "total"}});
  Tensor result;
  if (!run_pointwise(PointwiseOp::dirichlet_grad, result, {x, alpha, total})) {
    return call_cpu_fallback<at::_ops::_dirichlet_grad>::call(x, alpha, total);
  }
  return result;
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_standard_gamma_grad", TORCH_FN(standard_gamma_grad));
  m.impl("_dirichlet_grad", TORCH_FN(dirichlet_grad));
}

} // namespace
} // namespace torch_webgpu
