// Gradients of gamma and Dirichlet numbers by their parameters.
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_dirichlet_grad_ops.h>
#include <ATen/ops/_standard_gamma_grad_ops.h>
#include <torch/library.h>

#include "backend/fallback.h"
#include "ops/common.h"
#include "ops/pointwise.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

// Nothing where the dtype has no kernel.
std::optional<Tensor> run(PointwiseOp op, std::initializer_list<Tensor> inputs) {
  at::TensorIteratorConfig config;
  config.add_owned_output(Tensor());
  for (const Tensor& input : inputs) {
    config.add_owned_const_input(input);
  }
  at::TensorIterator iter = config.build();
  const auto types = pointwise_types(iter, op);
  if (!types) {
    return std::nullopt;
  }
  pointwise(iter, op, *types);
  return iter.output();
}

Tensor standard_gamma_grad(const Tensor& self, const Tensor& output) {
  check_same_device("_standard_gamma_grad", {{self, "self"}, {output, "output"}});
  const auto result = run(PointwiseOp::standard_gamma_grad, {self, output});
  return result ? *result : call_cpu_fallback<at::_ops::_standard_gamma_grad>::call(self, output);
}

Tensor dirichlet_grad(const Tensor& x, const Tensor& alpha, const Tensor& total) {
  check_same_device("_dirichlet_grad", {{x, "x"}, {alpha, "alpha"}, {total, "total"}});
  const auto result = run(PointwiseOp::dirichlet_grad, {x, alpha, total});
  return result ? *result : call_cpu_fallback<at::_ops::_dirichlet_grad>::call(x, alpha, total);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_standard_gamma_grad", TORCH_FN(standard_gamma_grad));
  m.impl("_dirichlet_grad", TORCH_FN(dirichlet_grad));
}

} // namespace
} // namespace torch_webgpu
