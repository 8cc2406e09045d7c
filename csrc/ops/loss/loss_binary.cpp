// binary_cross_entropy. The variant on logits is composite.
#include <ATen/core/Reduction.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/binary_cross_entropy_backward_ops.h>
#include <ATen/ops/binary_cross_entropy_ops.h>
#include <ATen/ops/empty_like.h>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/registration.h"
#include "launch/common.h"
#include "ops/checks/check_values.h"
#include "ops/pointwise/pointwise.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

bool has(const OptionalTensor& tensor) { return tensor.has_value() && tensor->defined(); }

// The error text is that of a TensorIterator, which the CPU's operator uses.
void check_found(const Tensor& out, const Tensor& self) {
  TORCH_CHECK(out.scalar_type() == self.scalar_type(), "Found dtype ", out.scalar_type(),
              " but expected ", self.scalar_type());
}

Tensor& binary_cross_entropy_out(const Tensor& self, const Tensor& target,
                                 const OptionalTensor& weight, int64_t reduction, Tensor& out) {
  check_same_device("binary_cross_entropy_out", {{out, "out"}, {self, "self"}, {target, "target"}});
  require_probabilities("binary_cross_entropy", self,
                        "all elements of input should be between 0 and 1");
  require_probabilities("binary_cross_entropy", target,
                        "all elements of target should be between 0 and 1");
  check_found(out, self);
  const bool none = reduction == at::Reduction::None;
  if (none) {
    at::native::resize_output(out, target.sizes());
  }
  Tensor losses = none ? out : empty_webgpu(target.sizes(), self.options());
  if (!run_pointwise(PointwiseOp::binary_cross_entropy, losses, {self, target}, {})) {
    // The CPU's out= forms want outputs of the input's size, whatever the reduction.
    return write_out(
        call_cpu_fallback<at::_ops::binary_cross_entropy>::call(self, target, weight, reduction),
        out);
  }
  if (has(weight)) {
    losses.mul_(*weight);
  }
  if (!none) {
    write_out(reduction == at::Reduction::Mean ? losses.mean() : losses.sum(), out);
  }
  return out;
}

Tensor binary_cross_entropy(const Tensor& self, const Tensor& target, const OptionalTensor& weight,
                            int64_t reduction) {
  const bool keeps_strides = reduction == at::Reduction::None && self.sizes() == target.sizes();
  Tensor out = keeps_strides ? at::empty_like(self) : empty_webgpu({0}, self.options());
  return binary_cross_entropy_out(self, target, weight, reduction, out);
}

Tensor& binary_cross_entropy_backward_out(const Tensor& grad_output, const Tensor& self,
                                          const Tensor& target, const OptionalTensor& weight,
                                          int64_t reduction, Tensor& grad_input) {
  check_same_device("binary_cross_entropy_backward_out", {{grad_input, "grad_input"},
                                                          {grad_output, "grad_output"},
                                                          {self, "self"},
                                                          {target, "target"}});
  check_found(grad_input, self);
  at::native::resize_output(grad_input, self.sizes());
  const bool mean = reduction == at::Reduction::Mean;
  const double scale = mean ? 1.0 / static_cast<double>(self.numel()) : 1.0;
  if (!run_pointwise(PointwiseOp::binary_cross_entropy_backward, grad_input,
                     {grad_output, self, target}, c10::Scalar(scale))) {
    return write_out(call_cpu_fallback<at::_ops::binary_cross_entropy_backward>::call(
                         grad_output, self, target, weight, reduction),
                     grad_input);
  }
  if (has(weight)) {
    grad_input.mul_(*weight);
  }
  return grad_input;
}

Tensor binary_cross_entropy_backward(const Tensor& grad_output, const Tensor& self,
                                     const Tensor& target, const OptionalTensor& weight,
                                     int64_t reduction) {
  Tensor grad_input = empty_webgpu({0}, self.options());
  return binary_cross_entropy_backward_out(grad_output, self, target, weight, reduction,
                                           grad_input);
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("binary_cross_entropy", TORCH_FN(binary_cross_entropy));
  m.impl("binary_cross_entropy.out", TORCH_FN(binary_cross_entropy_out));
  m.impl("binary_cross_entropy_backward", TORCH_FN(binary_cross_entropy_backward));
  m.impl("binary_cross_entropy_backward.grad_input", TORCH_FN(binary_cross_entropy_backward_out));
}

} // namespace
} // namespace torch_webgpu
