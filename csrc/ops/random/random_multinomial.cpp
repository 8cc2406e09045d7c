// multinomial with replacement. Without it, ATen takes the largest of exponentially distributed
// numbers.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/stack.h>

#include <cmath>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/generator.h"
#include "kernels/multinomial.h"
#include "launch/dtypes.h"
#include "launch/stub.h"
#include "ops/random/philox.h"

namespace torch_webgpu {
namespace {

using namespace at::native;
using at::Tensor;

void check_weights(const Tensor& weights, const Tensor& totals) {
  const Tensor facts = at::stack({weights.amin(), weights.amax(), totals.amin()}).cpu();
  const float* fact = facts.const_data_ptr<float>();
  TORCH_CHECK(
      std::isfinite(fact[0]) && std::isfinite(fact[1]),
      "invalid multinomial distribution (encountering probability entry = infinity or NaN)");
  TORCH_CHECK(fact[0] >= 0,
              "invalid multinomial distribution (encountering probability entry < 0)");
  TORCH_CHECK(fact[2] > 0, "invalid multinomial distribution (sum of probabilities <= 0)");
}

void multinomial(Tensor& result, const Tensor& self, int64_t draws,
                 std::optional<at::Generator> generator) {
  GeneratorImpl& state = generator_of(generator, self.device());
  if (!native_dtype(self.scalar_type())) {
    note_fallback("aten::multinomial", self.scalar_type());
    const PhiloxState philox = state.philox_state(4);
    Tensor host = result.cpu();
    call_on_cpu(
        multinomial_with_replacement_stub, host, self.cpu(), draws,
        at::detail::createCPUGenerator(philox.seed + philox.offset * 0x9e3779b97f4a7c15ull));
    result.copy_(host);
    return;
  }
  if (result.numel() == 0) {
    return;
  }
  TORCH_CHECK(self.numel() > 0, "invalid multinomial distribution (sum of probabilities <= 0)");
  TORCH_CHECK_NOT_IMPLEMENTED(self.numel() < int64_t{1} << 31 && result.numel() < int64_t{1} << 31,
                              "multinomial(): more than 2^31 elements");
  const Tensor weights = self.to(at::kFloat).contiguous();
  const Tensor sums = weights.cumsum(-1).contiguous();
  check_weights(weights, sums.select(-1, -1));
  const Tensor packed =
      result.is_contiguous() ? result : empty_webgpu(result.sizes(), at::kLong, result.device());
  const PhiloxState philox = state.philox_state(4);
  kernels::multinomial::Launch launch("multinomial");
  launch.out(packed).weight(weights).sum(sums);
  const auto count = static_cast<uint32_t>(result.numel());
  launch.run({.count = count,
              .draws = static_cast<uint32_t>(draws),
              .weights = static_cast<uint32_t>(weights.size(-1)),
              .philox = philox_words(philox)},
             launch.grid_of(count));
  if (!packed.is_same(result)) {
    result.copy_(packed);
  }
}

const RegisterStub<decltype(multinomial_with_replacement_stub)>
    register_multinomial(multinomial_with_replacement_stub, &multinomial);

} // namespace
} // namespace torch_webgpu
