// Fake quantization: rounding to what a quantized tensor could hold, in floating point, and its
// gradients.
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/quantized/FakeQuantAffine.h>
#include <ATen/ops/full.h>

#include "backend/fallback.h"
#include "launch/stub.h"
#include "ops/pointwise/pointwise.h"

namespace torch_webgpu {
namespace {

using namespace at::native;
using at::Tensor;
using at::TensorIterator;

using Scalars = c10::ArrayRef<c10::Scalar>;

// False where an operand's dtype has no kernel.
bool run(PointwiseOp op, const Tensor& out, at::ArrayRef<Tensor> inputs, Scalars scalars) {
  at::TensorIteratorConfig config;
  config.add_output(out).resize_outputs(false).check_all_same_dtype(false);
  const auto out_dtype = native_dtype(out.scalar_type());
  if (!out_dtype) {
    return false;
  }
  PointwiseTypes types{DType::kF32, {*out_dtype}};
  for (size_t k = 0; k < inputs.size(); ++k) {
    const auto dtype = convertible_dtype(inputs[k].scalar_type());
    if (!dtype) {
      return false;
    }
    config.add_const_input(inputs[k]);
    types.dtypes[k + 1] = *dtype;
  }
  auto iter = config.build();
  pointwise(iter, op, types, scalars);
  return true;
}

void no_kernel(const char* op, at::ScalarType type) {
  // The arithmetic is float32 on every device; float64 tensors are rounded to it by the CPU too.
  note_fallback(op, type);
}

void per_tensor(Tensor& output, Tensor& mask, const Tensor& input, float scale, int64_t zero_point,
                int64_t least, int64_t greatest) {
  const std::array<c10::Scalar, 4> scalars = {1.0f / scale, least - zero_point,
                                              greatest - zero_point, scale};
  if (run(PointwiseOp::fake_quantize, output, {input}, scalars)) {
    run(PointwiseOp::fake_quantize_mask, mask, {input}, Scalars(scalars).slice(0, 3));
    return;
  }
  no_kernel("aten::fake_quantize_per_tensor_affine_cachemask", input.scalar_type());
  Tensor host_output = output.cpu();
  Tensor host_mask = mask.cpu();
  call_on_cpu(fake_quant_tensor_cachemask_stub, host_output, host_mask, input.cpu(), scale,
              zero_point, least, greatest);
  output.copy_(host_output);
  mask.copy_(host_mask);
}

void per_tensor_of_tensors(Tensor& output, Tensor& mask, const Tensor& input, const Tensor& scale,
                           const Tensor& zero_point, const Tensor& enabled, int64_t least,
                           int64_t greatest) {
  const Tensor s = scale.reshape({});
  Tensor z = zero_point.reshape({});
  if (z.is_floating_point()) {
    z = z.trunc(); // the CPU reads an integer
  }
  if (run(PointwiseOp::fake_quantize_by, output, {input, s, z}, {least, greatest})) {
    run(PointwiseOp::fake_quantize_mask_by, mask, {input, s, z}, {least, greatest});
    // `enabled` is known only on the device, so both results are computed and one is chosen there.
    const Tensor off = enabled.reshape({}).eq(0);
    output.copy_(input.where(off, output));
    mask.logical_or_(off);
    return;
  }
  no_kernel("aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", input.scalar_type());
  Tensor host_output = output.cpu();
  Tensor host_mask = mask.cpu();
  call_on_cpu(fake_quant_tensor_cachemask_tensor_qparams_stub, host_output, host_mask, input.cpu(),
              scale.cpu(), zero_point.cpu(), enabled.cpu(), least, greatest);
  output.copy_(host_output);
  mask.copy_(host_mask);
}

std::vector<Tensor> inputs_of(TensorIterator& iter) {
  std::vector<Tensor> inputs;
  for (int k = iter.noutputs(); k < iter.ntensors(); ++k) {
    inputs.push_back(iter.tensor(k));
  }
  return inputs;
}

void per_channel(TensorIterator& iter, TensorIterator& iter_mask, int64_t least, int64_t greatest) {
  const auto inputs = inputs_of(iter); // the input, scales, zero points
  if (run(PointwiseOp::fake_quantize_by, iter.tensor(0), inputs, {least, greatest})) {
    run(PointwiseOp::fake_quantize_mask_by, iter_mask.tensor(0), inputs, {least, greatest});
    return;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, "fake_quantize_per_channel_affine: there is no kernel for ",
                              iter.dtype(0));
}

// The three gradients of the iterator, from {input, gradient, scale, zero point}.
void learnable(TensorIterator& iter, at::ArrayRef<Tensor> inputs, int64_t least, int64_t greatest,
               float factor) {
  const std::array<c10::Scalar, 3> scalars = {least, greatest, factor};
  const bool done =
      run(PointwiseOp::fake_quantize_grad_input, iter.tensor(0), inputs,
          Scalars(scalars).slice(0, 2)) &&
      run(PointwiseOp::fake_quantize_grad_scale, iter.tensor(1), inputs, scalars) &&
      run(PointwiseOp::fake_quantize_grad_zero_point, iter.tensor(2), inputs, scalars);
  TORCH_CHECK_NOT_IMPLEMENTED(done, "fake quantization: there is no kernel for ", iter.dtype(0));
}

void learnable_per_tensor(TensorIterator& iter, float scale, float inverse, int64_t zero_point,
                          int64_t least, int64_t greatest, float factor) {
  auto inputs = inputs_of(iter);
  const auto options = inputs[0].options().dtype(at::kFloat);
  inputs.push_back(at::full({}, scale, options));
  inputs.push_back(at::full({}, static_cast<double>(zero_point), options));
  learnable(iter, inputs, least, greatest, factor);
}

void learnable_per_channel(TensorIterator& iter, int64_t least, int64_t greatest, float factor) {
  learnable(iter, inputs_of(iter), least, greatest, factor);
}

const RegisterStub<decltype(fake_quant_tensor_cachemask_stub)>
    register_per_tensor(fake_quant_tensor_cachemask_stub, &per_tensor);
const RegisterStub<decltype(fake_quant_tensor_cachemask_tensor_qparams_stub)>
    register_of_tensors(fake_quant_tensor_cachemask_tensor_qparams_stub, &per_tensor_of_tensors);
const RegisterStub<decltype(fake_quant_per_channel_cachemask_stub)>
    register_per_channel(fake_quant_per_channel_cachemask_stub, &per_channel);
const RegisterStub<decltype(fake_quant_grad_learnable_tensor_stub)>
    register_learnable(fake_quant_grad_learnable_tensor_stub, &learnable_per_tensor);
const RegisterStub<decltype(fake_quant_grad_learnable_channel_stub)>
    register_learnable_channel(fake_quant_grad_learnable_channel_stub, &learnable_per_channel);

} // namespace
} // namespace torch_webgpu
