// Pooling whose windows follow from the output's size: adaptive, and fractional (placed at random).
#include <ATen/native/AdaptivePooling.h>
#include <ATen/native/FractionalMaxPooling.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_adaptive_avg_pool2d.h>
#include <ATen/ops/_adaptive_avg_pool2d_backward.h>
#include <ATen/ops/_adaptive_avg_pool3d.h>
#include <ATen/ops/_adaptive_avg_pool3d_backward.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/adaptive_avg_pool3d.h>
#include <ATen/ops/adaptive_avg_pool3d_backward.h>
#include <ATen/ops/adaptive_max_pool2d.h>
#include <ATen/ops/adaptive_max_pool2d_backward.h>
#include <ATen/ops/adaptive_max_pool3d.h>
#include <ATen/ops/adaptive_max_pool3d_backward.h>
#include <ATen/ops/fractional_max_pool2d.h>
#include <ATen/ops/fractional_max_pool2d_backward.h>
#include <ATen/ops/fractional_max_pool3d.h>
#include <ATen/ops/fractional_max_pool3d_backward.h>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/registration.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "ops/pool/pool.h"
#include "structured_ops.h"

namespace torch_webgpu {
namespace {

using at::IntArrayRef;
using at::Tensor;

// Gives `out` the size and, if it was resized, the memory format of a batch of images. Means of
// volumes are contiguous whatever the format, as on the CPU and on CUDA, and as the meta functions
// tell compilers.
template <int64_t dims>
void resize_pooled(Tensor& out, IntArrayRef size, const Tensor& like) {
  if (at::native::resize_output(out, size) && dims == 2 && like.dim() == 4) {
    out.unsafeGetTensorImpl()->empty_tensor_restride(like.suggest_memory_format());
  }
}

void check_not_integral(const char* op, const Tensor& self) {
  TORCH_CHECK_NOT_IMPLEMENTED(!at::isIntegralType(self.scalar_type(), /*includeBool=*/true), '"',
                              op, "\" not implemented for '", self.scalar_type(), "'");
}

template <int64_t dims>
const char* average_name() {
  return dims == 2 ? "adaptive_avg_pool2d" : "adaptive_avg_pool3d";
}

template <int64_t dims>
Tensor& adaptive_average_out(const Tensor& self, IntArrayRef output_size, Tensor& out) {
  const char* name = average_name<dims>();
  check_same_device(dims == 2 ? "adaptive_avg_pool2d_out" : "adaptive_avg_pool3d_out",
                    {{out, "out"}, {self, "self"}});
  TORCH_CHECK(output_size.size() == dims, name, ": output_size must be ", dims);
  TORCH_CHECK(self.dim() == dims + 1 || self.dim() == dims + 2, name, "(): Expected ", dims + 1,
              "D or ", dims + 2, "D tensor, but got ", self.sizes());
  for (int64_t d = self.dim() - dims; d < self.dim(); ++d) {
    TORCH_CHECK(self.size(d) > 0, name,
                "(): Expected input to have non-zero size for non-batch dimensions, but input has "
                "sizes ",
                self.sizes(), " with dimension ", d, " being empty");
  }
  TORCH_CHECK(self.dtype() == out.dtype(), "expected dtype ", self.dtype(),
              " for `output` but got dtype ", out.dtype());
  auto size = self.sizes().vec();
  std::copy(output_size.begin(), output_size.end(), size.end() - dims);
  resize_pooled<dims>(out, size, self);
  pool_average({name, dims, Windows::kAdaptive}, self, out);
  return out;
}

template <int64_t dims>
Tensor& adaptive_average_backward_out(const Tensor& grad_output, const Tensor& self,
                                      Tensor& grad_input) {
  const char* name = dims == 2 ? "adaptive_avg_pool2d_backward" : "adaptive_avg_pool3d_backward";
  check_same_device(name,
                    {{grad_input, "grad_input"}, {grad_output, "grad_output"}, {self, "self"}});
  at::native::adaptive_pool_empty_output_check(grad_output, name);
  TORCH_CHECK(self.dim() == grad_output.dim(), name, ": Expected dimensions ", self.dim(),
              " for `grad_output` but got dimensions ", grad_output.dim());
  TORCH_CHECK(self.dim() == dims + 1 || self.dim() == dims + 2, name, "(): Expected ", dims + 1,
              "D or ", dims + 2, "D tensor, but got ", self.sizes());
  TORCH_CHECK(grad_output.dim() == self.dim() &&
                  grad_output.size(-dims - 1) == self.size(-dims - 1) &&
                  (self.dim() == dims + 1 || grad_output.size(0) == self.size(0)),
              name, "(): grad_output of size ", grad_output.sizes(),
              " does not belong to an input of size ", self.sizes());
  TORCH_CHECK(self.dtype() == grad_output.dtype(), "expected dtype ", self.dtype(),
              " for `grad_output` but got dtype ", grad_output.dtype());
  resize_pooled<dims>(grad_input, self.sizes(), self);
  pool_average_backward({name, dims, Windows::kAdaptive}, grad_output, grad_input);
  return grad_input;
}

Tensor& adaptive_avg_pool2d_out(const Tensor& self, IntArrayRef output_size, Tensor& out) {
  check_not_integral("adaptive_avg_pool2d", self);
  if (!is_native_float(self)) {
    return call_cpu_fallback_symint<at::_ops::adaptive_avg_pool2d_out>::call(
        self, c10::fromIntArrayRefSlow(output_size), out);
  }
  return adaptive_average_out<2>(self, output_size, out);
}

Tensor& adaptive_avg_pool3d_out(const Tensor& self, IntArrayRef output_size, Tensor& out) {
  check_not_integral("adaptive_avg_pool3d", self);
  if (!is_native_float(self)) {
    return call_cpu_fallback_symint<at::_ops::adaptive_avg_pool3d_out>::call(
        self, c10::fromIntArrayRefSlow(output_size), out);
  }
  return adaptive_average_out<3>(self, output_size, out);
}

Tensor adaptive_avg_pool2d(const Tensor& self, IntArrayRef output_size) {
  check_not_integral("adaptive_avg_pool2d", self);
  if (!is_native_float(self)) {
    return call_cpu_fallback_symint<at::_ops::_adaptive_avg_pool2d>::call(
        self, c10::fromIntArrayRefSlow(output_size));
  }
  Tensor out = empty_webgpu({0}, self.options());
  return adaptive_avg_pool2d_out(self, output_size, out);
}

Tensor adaptive_avg_pool3d(const Tensor& self, IntArrayRef output_size) {
  check_not_integral("adaptive_avg_pool3d", self);
  if (!is_native_float(self)) {
    return call_cpu_fallback_symint<at::_ops::_adaptive_avg_pool3d>::call(
        self, c10::fromIntArrayRefSlow(output_size));
  }
  Tensor out = empty_webgpu({0}, self.options());
  return adaptive_avg_pool3d_out(self, output_size, out);
}

Tensor adaptive_avg_pool2d_backward(const Tensor& grad_output, const Tensor& self) {
  if (!is_native_float(self)) {
    return call_cpu_fallback<at::_ops::_adaptive_avg_pool2d_backward>::call(grad_output, self);
  }
  Tensor grad_input = empty_webgpu({0}, self.options());
  return adaptive_average_backward_out<2>(grad_output, self, grad_input);
}

Tensor& adaptive_avg_pool3d_backward_out(const Tensor& grad_output, const Tensor& self,
                                         Tensor& grad_input) {
  if (!is_native_float(self)) {
    return call_cpu_fallback<at::_ops::adaptive_avg_pool3d_backward_grad_input>::call(
        grad_output, self, grad_input);
  }
  return adaptive_average_backward_out<3>(grad_output, self, grad_input);
}

Tensor adaptive_avg_pool3d_backward(const Tensor& grad_output, const Tensor& self) {
  Tensor grad_input = empty_webgpu({0}, self.options());
  return adaptive_avg_pool3d_backward_out(grad_output, self, grad_input);
}

Pooling fractional(const char* op, int64_t dims, IntArrayRef kernel_size) {
  Pooling pooling{op, dims, Windows::kFractional};
  pooling.set(pooling.kernel, kernel_size);
  return pooling;
}

Tensor& fractional_max_pool3d_backward_out(const Tensor& grad_output, const Tensor& self,
                                           IntArrayRef kernel_size, IntArrayRef output_size,
                                           const Tensor& indices, Tensor& grad_input) {
  check_same_device("fractional_max_pool3d_backward_out", {{grad_input, "grad_input"},
                                                           {grad_output, "grad_output"},
                                                           {self, "self"},
                                                           {indices, "indices"}});
  TORCH_CHECK(
      kernel_size.size() == 3 && output_size.size() == 3,
      "fractional_max_pool3d_backward_out(): kernel_size and output_size must be three ints");
  TORCH_CHECK(grad_output.dim() == 4 || grad_output.dim() == 5,
              "fractional_max_pool3d_backward_out(): expected 4D or 5D tensor, but got ",
              grad_output.sizes());
  if (!is_native_float(self)) {
    return call_cpu_fallback<at::_ops::fractional_max_pool3d_backward_grad_input>::call(
        grad_output, self, kernel_size, output_size, indices, grad_input);
  }
  for (int64_t d = 0; d < 3; ++d) {
    constexpr const char* kNames[] = {"time", "height", "width"};
    TORCH_CHECK(output_size[d] == grad_output.size(d - 3),
                "fractional_max_pool3d_backward_out(): ", "gradOutput ", kNames[d], " unexpected");
  }
  TORCH_CHECK(indices.sizes() == grad_output.sizes() && self.dim() == grad_output.dim(),
              "fractional_max_pool3d_backward_out(): indices of size ", indices.sizes(),
              " do not belong to a gradient of size ", grad_output.sizes());
  check_dtype(indices, at::kLong);
  check_dtype(grad_input, self.scalar_type());
  at::native::resize_output(grad_input, self.sizes());
  pool_max_backward(fractional("fractional_max_pool3d_backward", 3, kernel_size), grad_output,
                    indices, grad_input);
  return grad_input;
}

Tensor fractional_max_pool3d_backward(const Tensor& grad_output, const Tensor& self,
                                      IntArrayRef kernel_size, IntArrayRef output_size,
                                      const Tensor& indices) {
  Tensor grad_input = empty_webgpu({0}, self.options());
  return fractional_max_pool3d_backward_out(grad_output, self, kernel_size, output_size, indices,
                                            grad_input);
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("adaptive_avg_pool2d.out", TORCH_FN(adaptive_avg_pool2d_out));
  m.impl("_adaptive_avg_pool2d", TORCH_FN(adaptive_avg_pool2d));
  m.impl("_adaptive_avg_pool2d_backward", TORCH_FN(adaptive_avg_pool2d_backward));
  m.impl("adaptive_avg_pool3d.out", TORCH_FN(adaptive_avg_pool3d_out));
  m.impl("_adaptive_avg_pool3d", TORCH_FN(adaptive_avg_pool3d));
  m.impl("_adaptive_avg_pool3d_backward", TORCH_FN(adaptive_avg_pool3d_backward));
  m.impl("adaptive_avg_pool3d_backward.grad_input", TORCH_FN(adaptive_avg_pool3d_backward_out));
  m.impl("fractional_max_pool3d_backward", TORCH_FN(fractional_max_pool3d_backward));
  m.impl("fractional_max_pool3d_backward.grad_input", TORCH_FN(fractional_max_pool3d_backward_out));
}

} // namespace

void structured_adaptive_max_pool2d_out::impl(const Tensor& self, IntArrayRef output_size,
                                              const Tensor& out, const Tensor& indices) {
  check_not_integral("adaptive_max_pool2d", self);
  if (!can_pool_max(self.scalar_type())) {
    call_cpu_fallback<at::_ops::adaptive_max_pool2d_out>::call(
        self, output_size, const_cast<Tensor&>(out), const_cast<Tensor&>(indices));
    return;
  }
  pool_max({"adaptive_max_pool2d", 2, Windows::kAdaptive}, self, out, indices);
}

void structured_adaptive_max_pool2d_backward_out::impl(const Tensor& grad_output,
                                                       const Tensor& self, const Tensor& indices,
                                                       const Tensor& grad_input) {
  if (!is_native_float(self)) {
    call_cpu_fallback<at::_ops::adaptive_max_pool2d_backward_grad_input>::call(
        grad_output, self, indices, const_cast<Tensor&>(grad_input));
    return;
  }
  pool_max_backward({"adaptive_max_pool2d_backward", 2, Windows::kAdaptive}, grad_output, indices,
                    grad_input);
}

void structured_adaptive_max_pool3d_out::impl(const Tensor& self, IntArrayRef output_size,
                                              const Tensor& out, const Tensor& indices) {
  check_not_integral("adaptive_max_pool3d", self);
  if (!can_pool_max(self.scalar_type())) {
    call_cpu_fallback<at::_ops::adaptive_max_pool3d_out>::call(
        self, output_size, const_cast<Tensor&>(out), const_cast<Tensor&>(indices));
    return;
  }
  pool_max({"adaptive_max_pool3d", 3, Windows::kAdaptive}, self, out, indices);
}

void structured_adaptive_max_pool3d_backward_out::impl(const Tensor& grad_output,
                                                       const Tensor& self, const Tensor& indices,
                                                       const Tensor& grad_input) {
  if (!is_native_float(self)) {
    call_cpu_fallback<at::_ops::adaptive_max_pool3d_backward_grad_input>::call(
        grad_output, self, indices, const_cast<Tensor&>(grad_input));
    return;
  }
  pool_max_backward({"adaptive_max_pool3d_backward", 3, Windows::kAdaptive}, grad_output, indices,
                    grad_input);
}

void structured_fractional_max_pool2d_out::impl(const Tensor& self, IntArrayRef kernel_size,
                                                IntArrayRef output_size,
                                                const Tensor& random_samples, const Tensor& output,
                                                const Tensor& indices) {
  at::native::fractional_max_pool_check_shape<2>(self, random_samples);
  if (!is_native_float(self)) {
    call_cpu_fallback<at::_ops::fractional_max_pool2d_output>::call(
        self, kernel_size, output_size, random_samples, const_cast<Tensor&>(output),
        const_cast<Tensor&>(indices));
    return;
  }
  pool_max(fractional("fractional_max_pool2d", 2, kernel_size), self, output, indices,
           random_samples);
}

void structured_fractional_max_pool2d_backward_out::impl(
    const Tensor& grad_output, const Tensor& self, IntArrayRef kernel_size, IntArrayRef output_size,
    const Tensor& indices, const Tensor& grad_input) {
  if (!is_native_float(self)) {
    call_cpu_fallback<at::_ops::fractional_max_pool2d_backward_grad_input>::call(
        grad_output, self, kernel_size, output_size, indices, const_cast<Tensor&>(grad_input));
    return;
  }
  pool_max_backward(fractional("fractional_max_pool2d_backward", 2, kernel_size), grad_output,
                    indices, grad_input);
}

void structured_fractional_max_pool3d_out::impl(const Tensor& self, int64_t poolSizeT,
                                                int64_t poolSizeH, int64_t poolSizeW,
                                                int64_t outputT, int64_t outputH, int64_t outputW,
                                                const Tensor& random_samples, int64_t numBatch,
                                                int64_t numPlanes, int64_t inputT, int64_t inputH,
                                                int64_t inputW, const Tensor& output,
                                                const Tensor& indices) {
  at::native::fractional_max_pool_check_shape<3>(self, random_samples);
  const std::array<int64_t, 3> kernel_size = {poolSizeT, poolSizeH, poolSizeW};
  if (!is_native_float(self)) {
    call_cpu_fallback<at::_ops::fractional_max_pool3d_output>::call(
        self, kernel_size, {outputT, outputH, outputW}, random_samples, const_cast<Tensor&>(output),
        const_cast<Tensor&>(indices));
    return;
  }
  pool_max(fractional("fractional_max_pool3d", 3, kernel_size), self, output, indices,
           random_samples);
}

} // namespace torch_webgpu
