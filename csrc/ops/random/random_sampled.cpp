// Random numbers with a parameter per element that take a varying count of draws: poisson, gamma.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_sample_dirichlet_ops.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_standard_gamma_ops.h>
#include <ATen/ops/poisson_ops.h>

#include <limits>
#include <string>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/registration.h"
#include "launch/dtypes.h"
#include "ops/checks/check_values.h"
#include "ops/random/generate.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using OptionalGenerator = std::optional<at::Generator>;

Tensor draw(RandomOp op, const Tensor& parameter, const OptionalGenerator& generator) {
  const Tensor out = empty_webgpu(parameter.sizes(), parameter.scalar_type(), parameter.device());
  draw_row(op, out, generator_of(generator, out.device()), {}, parameter.contiguous());
  return out;
}

Tensor poisson(const Tensor& self, OptionalGenerator generator) {
  if (!is_native_float(self)) {
    return call_cpu_fallback<at::_ops::poisson>::call(self, generator);
  }
  require_not_negative("poisson", self, "invalid Poisson rate, expected rate to be non-negative");
  return draw(RandomOp::poisson, self, generator);
}

Tensor standard_gamma(const Tensor& self, OptionalGenerator generator) {
  if (!is_native_float(self)) {
    return call_cpu_fallback<at::_ops::_standard_gamma>::call(self, generator);
  }
  return draw(RandomOp::standard_gamma, self, generator);
}

template <typename scalar_t>
Tensor within_open_interval(const Tensor& x) {
  using limits = std::numeric_limits<scalar_t>;
  return x.clamp(static_cast<double>(limits::min()), 1 - static_cast<double>(limits::epsilon()) / 2)
      .to(c10::CppTypeToScalarType<scalar_t>::value);
}

// Divides gamma variables by their sum, in logarithms, because those of small concentrations would
// underflow in float32.
Tensor sample_dirichlet(const Tensor& self, OptionalGenerator generator) {
  if (!is_native_float(self)) {
    return call_cpu_fallback<at::_ops::_sample_dirichlet>::call(self, generator);
  }
  const Tensor logs = draw(RandomOp::log_standard_gamma, self.to(at::kFloat), generator);
  const Tensor shares = at::_softmax(logs, -1, /*half_to_float=*/false);
  switch (self.scalar_type()) {
  case at::kHalf:
    return within_open_interval<c10::Half>(shares);
  case at::kBFloat16:
    return within_open_interval<c10::BFloat16>(shares);
  default:
    return within_open_interval<float>(shares);
  }
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("poisson", TORCH_FN(poisson));
  m.impl("_standard_gamma", TORCH_FN(standard_gamma));
  m.impl("_sample_dirichlet", TORCH_FN(sample_dirichlet));
}

} // namespace
} // namespace torch_webgpu
