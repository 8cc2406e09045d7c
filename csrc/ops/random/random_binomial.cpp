// Binomial numbers.
#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/binomial_ops.h>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/generator.h"
#include "backend/registration.h"
#include "kernels/binomial.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "ops/random/philox.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using OptionalGenerator = std::optional<at::Generator>;

Tensor binomial(const Tensor& count, const Tensor& prob, OptionalGenerator generator) {
  check_same_device("binomial", {{count, "count"}, {prob, "prob"}});
  for (const auto& [tensor, name] : {std::pair(count, "count"), std::pair(prob, "prob")}) {
    TORCH_CHECK_VALUE(at::isFloatingType(tensor.scalar_type()),
                      "binomial only supports floating-point dtypes for ", name,
                      ", got: ", tensor.scalar_type());
  }
  if (!is_native_float(count) || !is_native_float(prob)) {
    return call_cpu_fallback<at::_ops::binomial>::call(count, prob, std::move(generator));
  }
  TORCH_CHECK(count.scalar_type() == prob.scalar_type(), "Found dtype ", prob.scalar_type(),
              " but expected ", count.scalar_type());
  const auto sizes = at::infer_size(count.sizes(), prob.sizes());
  TORCH_CHECK_NOT_IMPLEMENTED(c10::multiply_integers(sizes) < int64_t{1} << 31,
                              "binomial(): more than 2^31 elements");
  const Tensor out = empty_webgpu(sizes, at::kFloat, prob.device());
  const Tensor p = prob.expand(sizes).to(at::kFloat).contiguous();
  const PhiloxState philox = generator_of(generator, prob.device()).philox_state(4);
  if (out.numel() != 0) {
    const Tensor n = count.expand(sizes).to(at::kFloat).contiguous();
    const auto size = static_cast<uint32_t>(out.numel());
    kernels::binomial::Launch launch("binomial");
    launch.out(out).trials(n).prob(p);
    launch.run({.size = size, .philox = philox_words(philox)}, launch.grid_of(size));
  }
  return out.to(count.scalar_type());
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("binomial", binomial); }

} // namespace
} // namespace torch_webgpu
