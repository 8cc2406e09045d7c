// Pointwise ops whose stub or schema does not fit the common pattern of pointwise_stubs.cpp.
#include <ATen/ScalarOps.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Activation.h>
#include <ATen/native/Fill.h>
#include <ATen/native/TensorCompare.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/_prelu_kernel_backward_ops.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/log_sigmoid_backward_ops.h>
#include <ATen/ops/log_sigmoid_forward_ops.h>

#include <array>
#include <cstring>
#include <tuple>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/registration.h"
#include "launch/common.h"
#include "launch/stub.h"
#include "ops/pointwise/pointwise.h"
#include "structured_ops.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using at::TensorIteratorBase;
using namespace at::native;

// The iterator's own types, or nothing.
bool run(TensorIteratorBase& iter, PointwiseOp op) {
  const auto types = pointwise_types(iter, op);
  if (types) {
    pointwise(iter, op, *types);
  }
  return types.has_value();
}

at::TensorIterator iterator(const Tensor& out, at::ArrayRef<Tensor> inputs) {
  at::TensorIteratorConfig config;
  config.add_output(out);
  for (const Tensor& input : inputs) {
    config.add_const_input(input);
  }
  return config.build();
}

// where only moves bits, so one kernel per width serves every dtype.
void where_webgpu(at::TensorIterator& iter) {
  const DType bits = raw_dtype(iter.dtype(0));
  pointwise(iter, PointwiseOp::where, {bits, {bits, DType::kBool, bits, bits}});
}

// The element's bits, as the (up to two) scalars that fill_bits takes.
std::array<c10::Scalar, 2> bits_of(const c10::Scalar& value, at::ScalarType type) {
  std::array<int64_t, 2> bits{};
  const auto set = [&](auto element) { std::memcpy(bits.data(), &element, sizeof(element)); };
  switch (type) {
#define TW_CASE(ctype, name)                                                                       \
  case at::ScalarType::name:                                                                       \
    set(value.to<ctype>());                                                                        \
    break;
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX(TW_CASE)
    TW_CASE(uint16_t, UInt16)
    TW_CASE(uint32_t, UInt32)
    TW_CASE(uint64_t, UInt64)
#undef TW_CASE
  default: { // float8 and other rare dtypes
    const Tensor element = c10::scalar_to_tensor(value).to(type);
    std::memcpy(bits.data(), element.const_data_ptr(), element.itemsize());
  }
  }
  return {bits[0], bits[1]};
}

// One kernel per width serves every dtype: the host converts the value.
void fill_webgpu(at::TensorIterator& iter, const c10::Scalar& value) {
  const DType raw = raw_dtype(iter.dtype(0));
  const auto scalars = bits_of(value, iter.dtype(0));
  pointwise(iter, PointwiseOp::fill_bits, {raw, {raw}},
            c10::ArrayRef<c10::Scalar>(scalars.data(), info(raw).bytes > 8 ? 2 : 1));
}

std::tuple<Tensor, Tensor> log_sigmoid_forward(const Tensor& self) {
  Tensor out = at::empty_like(self);
  auto iter = iterator(out, {self});
  if (!run(iter, PointwiseOp::log_sigmoid)) {
    return call_cpu_fallback<at::_ops::log_sigmoid_forward>::call(self);
  }
  return {out, empty_webgpu({0}, self.scalar_type(),
                            self.device())}; // no buffer is kept: the gradient needs none
}

std::tuple<Tensor&, Tensor&> log_sigmoid_forward_out(const Tensor& self, Tensor& output,
                                                     Tensor& buffer) {
  check_same_device("log_sigmoid_forward_out", {{output, "output"}, {self, "self"}});
  check_dtype(output, self.scalar_type());
  Tensor result = std::get<0>(log_sigmoid_forward(self));
  output.resize_(self.sizes()).copy_(result);
  return {output, buffer};
}

Tensor log_sigmoid_backward(const Tensor& grad, const Tensor& self, const Tensor& buffer) {
  Tensor grad_input = at::empty_like(grad);
  auto iter = iterator(grad_input, {grad, self});
  if (!run(iter, PointwiseOp::log_sigmoid_backward)) {
    return call_cpu_fallback<at::_ops::log_sigmoid_backward>::call(grad, self, buffer);
  }
  return grad_input;
}

Tensor& log_sigmoid_backward_out(const Tensor& grad, const Tensor& self, const Tensor& buffer,
                                 Tensor& grad_input) {
  check_same_device("log_sigmoid_backward_out",
                    {{grad_input, "grad_input"}, {grad, "grad_output"}, {self, "self"}});
  check_dtype(grad_input, grad.scalar_type());
  return grad_input.resize_(self.sizes()).copy_(log_sigmoid_backward(grad, self, buffer));
}

std::tuple<Tensor, Tensor> prelu_kernel_backward(const Tensor& grad, const Tensor& self,
                                                 const Tensor& weight) {
  Tensor grad_self = at::empty_like(self);
  Tensor grad_weight = at::empty_like(self);
  auto input_iter = iterator(grad_self, {self, weight, grad});
  auto weight_iter = iterator(grad_weight, {self, weight, grad});
  if (!run(input_iter, PointwiseOp::prelu_grad_input) ||
      !run(weight_iter, PointwiseOp::prelu_grad_weight)) {
    return call_cpu_fallback<at::_ops::_prelu_kernel_backward>::call(grad, self, weight);
  }
  return {grad_self, grad_weight};
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("log_sigmoid_forward", log_sigmoid_forward);
  m.impl("log_sigmoid_forward.output", log_sigmoid_forward_out);
  m.impl("log_sigmoid_backward", log_sigmoid_backward);
  m.impl("log_sigmoid_backward.grad_input", log_sigmoid_backward_out);
  m.impl("_prelu_kernel_backward", prelu_kernel_backward);
}

// Its outputs differ in dtype, which a row cannot say.
void frexp_webgpu(TensorIteratorBase& iter) {
  const auto dtype = native_dtype(iter.common_dtype());
  if (!dtype) {
    return fallback_iterator(iter, "aten::frexp",
                             [](TensorIteratorBase& cpu) { call_on_cpu(frexp_stub, cpu); });
  }
  const auto part = [&](int output, PointwiseOp op, DType result) {
    auto one = at::TensorIteratorConfig()
                   .add_output(iter.tensor(output))
                   .add_const_input(iter.tensor(2))
                   .check_all_same_dtype(false)
                   .build();
    pointwise(one, op, {*dtype, {result, *dtype}});
  };
  part(1, PointwiseOp::frexp_exponent, DType::kI32);
  part(0, PointwiseOp::frexp_mantissa, *dtype); // last: it may overwrite the input
}

void glu_jvp_webgpu(TensorIteratorBase& iter) {
  if (!run(iter, PointwiseOp::glu_jvp)) {
    fallback_iterator(iter, "aten::glu_jvp",
                      [](TensorIteratorBase& cpu) { call_on_cpu(glu_jvp_stub, cpu); });
  }
}

REGISTER_PRIVATEUSE1_DISPATCH(frexp_stub, &frexp_webgpu)
REGISTER_PRIVATEUSE1_DISPATCH(glu_jvp_stub, &glu_jvp_webgpu)
REGISTER_PRIVATEUSE1_DISPATCH(fill_stub, &fill_webgpu)
REGISTER_PRIVATEUSE1_DISPATCH(where_kernel, &where_webgpu)

} // namespace

// Builds its own iterator. That of the meta function refers to halves of `self` that were local
// variables there.
void structured_glu_out::impl(const Tensor& self, int64_t dim, const Tensor& out) {
  const int64_t half = self.size(dim) / 2;
  at::TensorIterator iter = at::TensorIteratorConfig()
                                .add_output(out)
                                .add_owned_const_input(self.narrow(dim, 0, half))
                                .add_owned_const_input(self.narrow(dim, half, half))
                                .resize_outputs(false)
                                .build();
  if (!run(iter, PointwiseOp::glu)) {
    fallback_iterator(iter, "aten::glu",
                      [](TensorIteratorBase& cpu) { call_on_cpu(glu_stub, cpu); });
  }
}

// gelu's shared implementation asks its stub for the CPU kernel, whatever the device.
void structured_gelu_out::impl(const Tensor& self, c10::string_view approximate,
                               const Tensor& result) {
  const GeluType type = get_gelutype_enum(approximate);
  if (!run(*this, type == GeluType::Tanh ? PointwiseOp::gelu_tanh : PointwiseOp::gelu)) {
    fallback_iterator(*this, "aten::gelu",
                      [&](TensorIteratorBase& cpu) { call_on_cpu(GeluKernel, cpu, type); });
  }
}

void structured_gelu_backward_out::impl(const Tensor& grad, const Tensor& self,
                                        c10::string_view approximate, const Tensor& grad_input) {
  const GeluType type = get_gelutype_enum(approximate);
  if (!run(*this,
           type == GeluType::Tanh ? PointwiseOp::gelu_tanh_backward : PointwiseOp::gelu_backward)) {
    fallback_iterator(*this, "aten::gelu_backward",
                      [&](TensorIteratorBase& cpu) { call_on_cpu(GeluBackwardKernel, cpu, type); });
  }
}

} // namespace torch_webgpu
