// rrelu: a leaky ReLU whose slopes are drawn at random in training. Its gradient is a composite
// that reads the slopes from `noise`.
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/mul.h>

#include "backend/empty.h"
#include "backend/generator.h"
#include "backend/registration.h"
#include "launch/common.h"

namespace torch_webgpu {
namespace {

using at::Scalar;
using at::Tensor;
using OptionalGenerator = std::optional<at::Generator>;

Tensor& rrelu_out(const Tensor& self, Tensor& noise, const Scalar& lower, const Scalar& upper,
                  bool training, OptionalGenerator generator, Tensor& out) {
  check_same_device("rrelu_with_noise_out", {{self, "self"}, {noise, "noise"}, {out, "out"}});
  TORCH_CHECK(self.sizes() == noise.sizes(),
              "noise tensor shape must match self tensor shape. Got self.shape = ", self.sizes(),
              " noise.shape = ", noise.sizes());
  if (!training) {
    return at::leaky_relu_out(out, self, (lower.to<double>() + upper.to<double>()) / 2);
  }
  noise.uniform_(lower.to<double>(), upper.to<double>(), std::move(generator));
  noise.masked_fill_(self.gt(0), 1);
  return at::mul_out(out, self, noise);
}

Tensor rrelu(const Tensor& self, Tensor& noise, const Scalar& lower, const Scalar& upper,
             bool training, OptionalGenerator generator) {
  // Contiguous whatever the strides of self are, as on the CPU and CUDA.
  Tensor out = empty_webgpu(self.sizes(), self.options());
  return rrelu_out(self, noise, lower, upper, training, std::move(generator), out);
}

Tensor& rrelu_(Tensor& self, Tensor& noise, const Scalar& lower, const Scalar& upper, bool training,
               OptionalGenerator generator) {
  return rrelu_out(self, noise, lower, upper, training, std::move(generator), self);
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("rrelu_with_noise", TORCH_FN(rrelu));
  m.impl("rrelu_with_noise.out", TORCH_FN(rrelu_out));
  m.impl("rrelu_with_noise_", TORCH_FN(rrelu_));
}

} // namespace
} // namespace torch_webgpu
