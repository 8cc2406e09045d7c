// Pooling over windows of one size: max_pool and avg_pool in two and three dimensions. One
// dimension is composite.
#include <ATen/native/Pool.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool2d_backward.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/avg_pool3d_backward.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/max_pool3d_with_indices.h>
#include <ATen/ops/max_pool3d_with_indices_backward.h>

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

Pooling max_pooling(const char* op, int64_t dims, IntArrayRef kernel_size, IntArrayRef stride,
                    IntArrayRef padding, IntArrayRef dilation) {
  Pooling pooling{op, dims};
  pooling.set_windows(kernel_size, stride, padding);
  pooling.set(pooling.dilation, dilation);
  return pooling;
}

Pooling average_pooling(const char* op, int64_t dims, IntArrayRef kernel_size, IntArrayRef stride,
                        IntArrayRef padding, bool count_include_pad,
                        std::optional<int64_t> divisor_override) {
  Pooling pooling{op, dims};
  pooling.set_windows(kernel_size, stride, padding);
  pooling.count_include_pad = count_include_pad;
  pooling.divisor_override = divisor_override.value_or(0);
  return pooling;
}

void check_arguments_3d(IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                        IntArrayRef dilation) {
  const auto fits = [](IntArrayRef values) { return values.size() == 1 || values.size() == 3; };
  TORCH_CHECK(fits(kernel_size),
              "max_pool3d: kernel_size must either be a single int, or a tuple of three ints");
  TORCH_CHECK(stride.empty() || fits(stride),
              "max_pool3d: stride must either be omitted, a single int, or a tuple of three ints");
  TORCH_CHECK(fits(padding),
              "max_pool3d: padding must either be a single int, or a tuple of three ints");
  TORCH_CHECK(fits(dilation),
              "max_pool3d: dilation must be either a single int, or a tuple of three ints");
}

// The output's spatial sizes; raises what PyTorch does for those that do not fit.
std::array<int64_t, 3> output_size_3d(const Pooling& pooling, const Tensor& in, bool ceil_mode) {
  const auto& [kernel, stride, padding, dilation] =
      std::tie(pooling.kernel, pooling.stride, pooling.padding, pooling.dilation);
  TORCH_CHECK(in.dim() == 4 || in.dim() == 5,
              "non-empty 4D or 5D (batch mode) tensor expected for input");
  std::array<int64_t, 3> out;
  for (int64_t d = 0; d < 3; ++d) {
    out[d] = at::native::pooling_output_shape<int64_t>(in.size(d - 3), kernel[d], padding[d],
                                                       stride[d], dilation[d], ceil_mode);
  }
  const auto narrow = [](int64_t value) { return at::native::safe_downcast<int, int64_t>(value); };
  at::native::pool3d_shape_check(
      in, in.size(-4), narrow(kernel[0]), narrow(kernel[1]), narrow(kernel[2]), narrow(stride[0]),
      narrow(stride[1]), narrow(stride[2]), narrow(padding[0]), narrow(padding[1]),
      narrow(padding[2]), narrow(dilation[0]), narrow(dilation[1]), narrow(dilation[2]),
      in.size(-3), in.size(-2), in.size(-1), out[0], out[1], out[2], "max_pool3d_with_indices()");
  return out;
}

// Makes `result` channels last if `self` is, also without a batch dimension.
void restride_like(const Tensor& result, const Tensor& self) {
  constexpr auto last = at::MemoryFormat::ChannelsLast3d;
  c10::TensorImpl* impl = result.unsafeGetTensorImpl();
  if (result.dim() == 5) {
    impl->empty_tensor_restride(self.suggest_memory_format());
  } else if (self.unsqueeze(0).is_contiguous(last) && !self.is_contiguous()) {
    const auto strides = at::get_channels_last_strides_3d(result.unsqueeze(0).sizes());
    impl->set_sizes_and_strides(result.sizes(), at::IntArrayRef(strides).slice(1));
  }
}

std::tuple<Tensor&, Tensor&> max_pool3d_with_indices_out(const Tensor& self,
                                                         IntArrayRef kernel_size,
                                                         IntArrayRef stride, IntArrayRef padding,
                                                         IntArrayRef dilation, bool ceil_mode,
                                                         Tensor& out, Tensor& indices) {
  check_same_device("max_pool3d_with_indices_out",
                    {{out, "out"}, {indices, "indices"}, {self, "self"}});
  if (!can_pool_max(self.scalar_type())) {
    return call_cpu_fallback<at::_ops::max_pool3d_with_indices_out>::call(
        self, kernel_size, stride, padding, dilation, ceil_mode, out, indices);
  }
  check_dtype(out, self.scalar_type());
  check_dtype(indices, at::kLong);
  check_arguments_3d(kernel_size, stride, padding, dilation);
  const Pooling pooling =
      max_pooling("max_pool3d_with_indices", 3, kernel_size, stride, padding, dilation);
  const auto spatial = output_size_3d(pooling, self, ceil_mode);
  auto size = self.sizes().vec();
  std::copy(spatial.begin(), spatial.end(), size.end() - 3);
  for (Tensor* result : {&out, &indices}) {
    if (at::native::resize_output(*result, size)) {
      restride_like(*result, self);
    }
  }
  pool_max(pooling, self, out, indices);
  return {out, indices};
}

std::tuple<Tensor, Tensor> max_pool3d_with_indices(const Tensor& self, IntArrayRef kernel_size,
                                                   IntArrayRef stride, IntArrayRef padding,
                                                   IntArrayRef dilation, bool ceil_mode) {
  if (!can_pool_max(self.scalar_type())) { // not its out=, which would not keep channels last
    return call_cpu_fallback<at::_ops::max_pool3d_with_indices>::call(self, kernel_size, stride,
                                                                      padding, dilation, ceil_mode);
  }
  Tensor out = empty_webgpu({0}, self.options());
  Tensor indices = empty_webgpu({0}, at::kLong);
  max_pool3d_with_indices_out(self, kernel_size, stride, padding, dilation, ceil_mode, out,
                              indices);
  return {out, indices};
}

Tensor& max_pool3d_with_indices_backward_out(const Tensor& grad_output, const Tensor& self,
                                             IntArrayRef kernel_size, IntArrayRef stride,
                                             IntArrayRef padding, IntArrayRef dilation,
                                             bool ceil_mode, const Tensor& indices,
                                             Tensor& grad_input) {
  check_same_device("max_pool3d_with_indices_backward_out", {{grad_input, "grad_input"},
                                                             {grad_output, "grad_output"},
                                                             {self, "self"},
                                                             {indices, "indices"}});
  if (!is_native_float(self)) {
    return call_cpu_fallback<at::_ops::max_pool3d_with_indices_backward_grad_input>::call(
        grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices, grad_input);
  }
  check_arguments_3d(kernel_size, stride, padding, dilation);
  const Pooling pooling =
      max_pooling("max_pool3d_with_indices_backward", 3, kernel_size, stride, padding, dilation);
  const auto spatial = output_size_3d(pooling, self, ceil_mode);
  for (const Tensor& result : {grad_output, indices}) {
    at::check_dim_size(result, self.dim(), self.dim() - 4, self.size(-4));
    for (int64_t d = 0; d < 3; ++d) {
      at::check_dim_size(result, self.dim(), self.dim() - 3 + d, spatial[d]);
    }
  }
  check_dtype(indices, at::kLong);
  check_dtype(grad_input, self.scalar_type());
  if (at::native::resize_output(grad_input, self.sizes()) && self.dim() == 5) {
    grad_input.unsafeGetTensorImpl()->empty_tensor_restride(self.suggest_memory_format());
  }
  pool_max_backward(pooling, grad_output, indices, grad_input);
  return grad_input;
}

Tensor max_pool3d_with_indices_backward(const Tensor& grad_output, const Tensor& self,
                                        IntArrayRef kernel_size, IntArrayRef stride,
                                        IntArrayRef padding, IntArrayRef dilation, bool ceil_mode,
                                        const Tensor& indices) {
  Tensor grad_input = empty_webgpu({0}, self.options());
  max_pool3d_with_indices_backward_out(grad_output, self, kernel_size, stride, padding, dilation,
                                       ceil_mode, indices, grad_input);
  return grad_input;
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("max_pool3d_with_indices", TORCH_FN(max_pool3d_with_indices));
  m.impl("max_pool3d_with_indices.out", TORCH_FN(max_pool3d_with_indices_out));
  m.impl("max_pool3d_with_indices_backward", TORCH_FN(max_pool3d_with_indices_backward));
  m.impl("max_pool3d_with_indices_backward.grad_input",
         TORCH_FN(max_pool3d_with_indices_backward_out));
}

// The gradient of avg_pool2d or avg_pool3d; `CpuOp` is the operator with that signature.
template <class CpuOp>
void average_backward(const char* op, int64_t dims, const Tensor& grad_output, const Tensor& self,
                      IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                      bool ceil_mode, bool count_include_pad,
                      std::optional<int64_t> divisor_override, const Tensor& grad_input) {
  if (!is_native_float(self)) {
    call_cpu_fallback<CpuOp>::call(grad_output, self, kernel_size, stride, padding, ceil_mode,
                                   count_include_pad, divisor_override,
                                   const_cast<Tensor&>(grad_input));
    return;
  }
  pool_average_backward(
      average_pooling(op, dims, kernel_size, stride, padding, count_include_pad, divisor_override),
      grad_output, grad_input);
}

} // namespace

void structured_max_pool2d_with_indices_out::impl(const Tensor& self, IntArrayRef kernel_size,
                                                  IntArrayRef stride, IntArrayRef padding,
                                                  IntArrayRef dilation, bool ceil_mode,
                                                  const Tensor& out, const Tensor& indices) {
  if (!can_pool_max(self.scalar_type())) {
    call_cpu_fallback<at::_ops::max_pool2d_with_indices_out>::call(
        self, kernel_size, stride, padding, dilation, ceil_mode, const_cast<Tensor&>(out),
        const_cast<Tensor&>(indices));
    return;
  }
  pool_max(max_pooling("max_pool2d_with_indices", 2, kernel_size, stride, padding, dilation), self,
           out, indices);
}

void structured_max_pool2d_with_indices_backward_out::impl(
    const Tensor& grad_output, const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride,
    IntArrayRef padding, IntArrayRef dilation, bool ceil_mode, const Tensor& indices,
    const Tensor& grad_input) {
  if (!is_native_float(self)) {
    call_cpu_fallback<at::_ops::max_pool2d_with_indices_backward_grad_input>::call(
        grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices,
        const_cast<Tensor&>(grad_input));
    return;
  }
  pool_max_backward(
      max_pooling("max_pool2d_with_indices_backward", 2, kernel_size, stride, padding, dilation),
      grad_output, indices, grad_input);
}

void structured_avg_pool2d_out::impl(const Tensor& self, int64_t kH, int64_t kW, int64_t dH,
                                     int64_t dW, int64_t padH, int64_t padW, bool ceil_mode,
                                     bool count_include_pad,
                                     std::optional<int64_t> divisor_override, const Tensor& out) {
  if (!can_pool_average(self.scalar_type())) {
    call_cpu_fallback<at::_ops::avg_pool2d_out>::call(self, {kH, kW}, {dH, dW}, {padH, padW},
                                                      ceil_mode, count_include_pad,
                                                      divisor_override, const_cast<Tensor&>(out));
    return;
  }
  pool_average(average_pooling("avg_pool2d", 2, {kH, kW}, {dH, dW}, {padH, padW}, count_include_pad,
                               divisor_override),
               self, out);
}

void structured_avg_pool2d_backward_out::impl(const Tensor& grad_output, const Tensor& self,
                                              IntArrayRef kernel_size, IntArrayRef stride,
                                              IntArrayRef padding, bool ceil_mode,
                                              bool count_include_pad,
                                              std::optional<int64_t> divisor_override,
                                              const Tensor& grad_input) {
  average_backward<at::_ops::avg_pool2d_backward_grad_input>(
      "avg_pool2d_backward", 2, grad_output, self, kernel_size, stride, padding, ceil_mode,
      count_include_pad, divisor_override, grad_input);
}

void structured_avg_pool3d_out::impl(const Tensor& self, IntArrayRef kernel_size,
                                     IntArrayRef stride, IntArrayRef padding, bool ceil_mode,
                                     bool count_include_pad,
                                     std::optional<int64_t> divisor_override, const Tensor& out) {
  if (!can_pool_average(self.scalar_type())) {
    call_cpu_fallback<at::_ops::avg_pool3d_out>::call(self, kernel_size, stride, padding, ceil_mode,
                                                      count_include_pad, divisor_override,
                                                      const_cast<Tensor&>(out));
    return;
  }
  pool_average(average_pooling("avg_pool3d", 3, kernel_size, stride, padding, count_include_pad,
                               divisor_override),
               self, out);
}

void structured_avg_pool3d_backward_out::impl(const Tensor& grad_output, const Tensor& self,
                                              IntArrayRef kernel_size, IntArrayRef stride,
                                              IntArrayRef padding, bool ceil_mode,
                                              bool count_include_pad,
                                              std::optional<int64_t> divisor_override,
                                              const Tensor& grad_input) {
  average_backward<at::_ops::avg_pool3d_backward_grad_input>(
      "avg_pool3d_backward", 3, grad_output, self, kernel_size, stride, padding, ceil_mode,
      count_include_pad, divisor_override, grad_input);
}

} // namespace torch_webgpu
