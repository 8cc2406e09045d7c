// Quantizing and dequantizing: ATen's quantizers own the parameters, the stubs here do the
// arithmetic.
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/quantized/AffineQuantizer.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/where.h>

#include <cstdint>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/graph.h"
#include "launch/stub.h"
#include "ops/pointwise/pointwise.h"
#include "ops/quantize/quantize.h"

namespace torch_webgpu {
namespace {

using namespace at::native;
using at::Tensor;

struct Range {
  double least;
  double greatest;
};

Range range_of(at::ScalarType type) {
  switch (c10::toUnderlying(type)) {
  case at::kChar:
    return {-128, 127};
  case at::kByte:
    return {0, 255};
  default:
    // The greatest f32 that is an int32: adding the zero point beyond 2^24 rounds, as on any GPU.
    return {-2147483648.0, 2147483520.0};
  }
}

void run(PointwiseOp op, const Tensor& out, at::ArrayRef<Tensor> inputs,
         c10::ArrayRef<c10::Scalar> scalars) {
  at::TensorIteratorConfig config;
  config.add_output(out).resize_outputs(false).check_all_same_dtype(false);
  PointwiseTypes types{DType::kF32, {*native_dtype(out.scalar_type())}};
  for (size_t k = 0; k < inputs.size(); ++k) {
    config.add_const_input(inputs[k]);
    types.dtypes[k + 1] = *native_dtype(inputs[k].scalar_type());
  }
  auto iter = config.build();
  pointwise(iter, op, types, scalars);
}

// A parameter of the channels, to be broadcast along the others of `like`.
Tensor along(const Tensor& parameter, const Tensor& like, int64_t axis) {
  at::DimVector shape(like.dim(), 1);
  shape[axis] = parameter.numel();
  return parameter.to(at::kFloat).to(like.device()).view(shape);
}

void quantize_tensor(const Tensor& in, Tensor& out, double scale, int64_t zero_point) {
  const Range range = range_of(out.scalar_type());
  const float inverse = 1.0f / static_cast<float>(scale);
  run(PointwiseOp::quantize, integers_of(out), {in},
      {inverse, zero_point, range.least, range.greatest});
}

// ATen leaves this check to the device, because it reads what lies there. In a capture nothing can
// be read: there the results are clamped.
void check_zero_points(const Tensor& zero_points, at::ScalarType type) {
  if (CapturedGraph::is_capturing()) {
    return;
  }
  const Range range = range_of(type);
  const int64_t greatest = type == at::kQInt32 ? INT32_MAX : static_cast<int64_t>(range.greatest);
  const Tensor host = zero_points.cpu().contiguous();
  for (int64_t k = 0; k < host.numel(); ++k) {
    const int64_t zero_point = host.const_data_ptr<int64_t>()[k];
    constexpr const char* op = "quantize_tensor_per_channel_affine";
    TORCH_CHECK(zero_point <= greatest, op, " zero_point ", zero_point, " is above upper bound.");
    TORCH_CHECK(zero_point >= static_cast<int64_t>(range.least), op, " zero_point ", zero_point,
                " is below lower bound.");
  }
}

void quantize_channels(const Tensor& in, Tensor& out, const Tensor& scales,
                       const Tensor& zero_points, int64_t axis) {
  check_zero_points(zero_points, out.scalar_type());
  const Range range = range_of(out.scalar_type());
  run(PointwiseOp::quantize_by, integers_of(out),
      {in, along(scales, in, axis), along(zero_points, in, axis)}, {range.least, range.greatest});
}

// With float zero points, which are added before the number is rounded.
void quantize_channels_by_floats(const Tensor& in, Tensor& out, const Tensor& scales,
                                 const Tensor& zero_points, int64_t axis) {
  const Range range = range_of(out.scalar_type());
  const Tensor scale = along(scales, in, axis);
  const Tensor inverse = at::where(scale.eq(0), 1.0, scale.reciprocal());
  const Tensor numbers = at::empty_like(in);
  run(PointwiseOp::scale_shift, numbers, {in, inverse, along(zero_points, in, axis)}, {});
  run(PointwiseOp::quantize, integers_of(out), {numbers}, {1.0, 0.0, range.least, range.greatest});
}

void dequantize_tensor(const Tensor& in, Tensor& out, double scale, int64_t zero_point) {
  run(PointwiseOp::dequantize, out, {integers_of(in)}, {scale, zero_point});
}

void dequantize_channels(const Tensor& in, Tensor& out, const Tensor& scales,
                         const Tensor& zero_points, int64_t axis) {
  run(PointwiseOp::dequantize_by, out,
      {integers_of(in), along(scales, in, axis), along(zero_points, in, axis)}, {});
}

// Elements of four and two bits, which integers_of refuses.
void quantize_parts_of_bytes(const Tensor& /*in*/, Tensor& out, float, float) { integers_of(out); }
void dequantize_parts_of_bytes(const Tensor& in, Tensor& /*out*/, float, float) { integers_of(in); }

const RegisterStub<decltype(quantize_tensor_per_tensor_affine_stub)>
    register_quantize(quantize_tensor_per_tensor_affine_stub, &quantize_tensor);
const RegisterStub<decltype(quantize_tensor_per_channel_affine_stub)>
    register_quantize_channels(quantize_tensor_per_channel_affine_stub, &quantize_channels);
const RegisterStub<decltype(quantize_tensor_per_channel_float_qparams_stub)>
    register_quantize_by_floats(quantize_tensor_per_channel_float_qparams_stub,
                                &quantize_channels_by_floats);
const RegisterStub<decltype(dequantize_tensor_per_tensor_affine_stub)>
    register_dequantize(dequantize_tensor_per_tensor_affine_stub, &dequantize_tensor);
const RegisterStub<decltype(dequantize_tensor_per_channel_affine_stub)>
    register_dequantize_channels(dequantize_tensor_per_channel_affine_stub, &dequantize_channels);
const RegisterStub<decltype(dequantize_tensor_per_channel_float_qparams_stub)>
    register_dequantize_by_floats(dequantize_tensor_per_channel_float_qparams_stub,
                                  &dequantize_channels);
const RegisterStub<decltype(quantize_tensor_per_tensor_affine_sub_byte_stub)>
    register_quantize_parts(quantize_tensor_per_tensor_affine_sub_byte_stub,
                            &quantize_parts_of_bytes);
const RegisterStub<decltype(dequantize_tensor_per_tensor_affine_sub_byte_stub)>
    register_dequantize_parts(dequantize_tensor_per_tensor_affine_sub_byte_stub,
                              &dequantize_parts_of_bytes);

} // namespace
} // namespace torch_webgpu
