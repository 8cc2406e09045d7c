// Random numbers with a parameter per element that take a varying count of draws: poisson, gamma.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_sample_dirichlet_ops.h>
#include <ATen/ops/_standard_gamma_ops.h>
#include <ATen/ops/poisson_ops.h>
#include <torch/library.h>

#include <string>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "ops/check_values.h"
#include "ops/dtypes.h"
#include "ops/generate.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using OptionalGenerator = std::optional<at::Generator>;

enum class Distribution : uint32_t { poisson, standard_gamma };

std::string values(const GenerateSpec& spec) {
  return "fn values(block: u32, index: u32) -> array<f32, 4> {\n"
         "  var v = array<f32, 4>();\n"
         "  for (var k = 0u; k < min(p.count - index, 4u); k++) {\n"
         "    var draws = Draws(p.seed, p.stream, 4u * block + k, 0u, vec4<u32>(0u));\n"
         "    v[k] = " +
         std::string(spec.name) +
         "_f(&draws, load_x(p.input_offset + index + k));\n"
         "  }\n  return v;\n}";
}

bool is_native_float(const Tensor& tensor) {
  const auto dtype = native_dtype(tensor.scalar_type());
  return dtype && info(*dtype).kind == Kind::kFloat;
}

Tensor draw(Distribution distribution, std::string_view name, const Tensor& parameter,
            const OptionalGenerator& generator) {
  const Tensor out = empty_webgpu(parameter.sizes(), parameter.scalar_type());
  GenerateSpec spec{Generated::kSampled, static_cast<uint32_t>(distribution), name, Kind::kFloat};
  spec.philox = generator_of(generator).philox_state(4);
  generate(out, spec, &values, parameter.contiguous());
  return out;
}

Tensor poisson(const Tensor& self, OptionalGenerator generator) {
  if (!is_native_float(self)) {
    return call_cpu_fallback<at::_ops::poisson>::call(self, generator);
  }
  require_not_negative("poisson", self, "invalid Poisson rate, expected rate to be non-negative");
  return draw(Distribution::poisson, "poisson", self, generator);
}

Tensor standard_gamma(const Tensor& self, OptionalGenerator generator) {
  if (!is_native_float(self)) {
    return call_cpu_fallback<at::_ops::_standard_gamma>::call(self, generator);
  }
  return draw(Distribution::standard_gamma, "standard_gamma", self, generator);
}

// Gamma variables over their sum.
Tensor sample_dirichlet(const Tensor& self, OptionalGenerator generator) {
  if (!is_native_float(self)) {
    return call_cpu_fallback<at::_ops::_sample_dirichlet>::call(self, generator);
  }
  const Tensor drawn =
      draw(Distribution::standard_gamma, "standard_gamma", self.to(at::kFloat), generator);
  return drawn.div(drawn.sum(-1, /*keepdim=*/true)).to(self.scalar_type());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("poisson", TORCH_FN(poisson));
  m.impl("_standard_gamma", TORCH_FN(standard_gamma));
  m.impl("_sample_dirichlet", TORCH_FN(sample_dirichlet));
}

} // namespace
} // namespace torch_webgpu
