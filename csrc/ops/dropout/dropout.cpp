// native_dropout: one dispatch forward, one backward.
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_dropout_backward_native.h>
#include <ATen/ops/native_dropout_ops.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include "backend/fallback.h"
#include "backend/generator.h"
#include "backend/registration.h"
#include "backend/tensor.h"
#include "kernels/dropout.h"
#include "launch/dtypes.h"
#include "launch/target_scope.h"
#include "ops/pointwise/pointwise.h"
#include "ops/random/philox.h"
#include "runtime/context.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

constexpr uint32_t kBlock = 4; // elements per invocation

Tensor native_dropout_backward(const Tensor& grad, const Tensor& mask, double scale) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "Mask should be Bool Scalar Type, got ",
              mask.scalar_type());
  const auto dtype = native_float_dtype(grad.scalar_type());
  if (!dtype) {
    return grad.mul(mask.to(grad.scalar_type()).mul(scale)); // promotes integers
  }
  Tensor out;
  auto iter = at::TensorIteratorConfig()
                  .add_owned_output(out)
                  .add_const_input(grad)
                  .add_const_input(mask)
                  .check_all_same_dtype(false)
                  .declare_static_dtype(grad.scalar_type())
                  .build();
  pointwise(iter, PointwiseOp::masked_scale, {*dtype, {*dtype, *dtype, DType::kBool}}, {scale});
  return iter.output();
}

std::tuple<Tensor, Tensor> native_dropout(const Tensor& input, double p,
                                          std::optional<bool> train) {
  const auto mask_options = input.options().dtype(at::kBool);
  if (input.numel() == 0) {
    return {input, at::empty_like(input, mask_options)};
  }
  if (train.has_value() && !*train) {
    return {input.clone(), at::ones_like(input, mask_options)};
  }
  const auto dtype = native_float_dtype(input.scalar_type());
  if (!dtype) {
    return call_cpu_fallback<at::_ops::native_dropout>::call(input, p, train);
  }
  // The kernel draws in memory order. The output keeps the order of the input's dimensions
  // (channels last, for example). An input with gaps between its elements is first copied
  // to a dense tensor.
  const Tensor x =
      input.is_non_overlapping_and_dense() ? input : at::empty_like(input).copy_(input);
  const double scale = p == 1.0 ? 0.0 : 1.0 / (1.0 - p);
  Tensor mask = at::empty_like(x, mask_options);
  if (buffer_of(x).size > plan_target(x).max_storage_binding_size) {
    mask.bernoulli_(1.0 - p); // both operators split tensors larger than a binding
    return {native_dropout_backward(x, mask, scale), mask};
  }
  Tensor out = at::empty_like(x);
  const PhiloxState philox = generator_of(std::nullopt, x.device()).philox_state(kBlock);
  const auto count = static_cast<uint32_t>(x.numel());
  kernels::dropout::Launch launch("native_dropout");
  launch.out(out).mask(mask).x(x).own_words_of_mask();
  if (x.itemsize() < 4) {
    launch.own_words_of_out();
  }
  launch.run({.count = count,
              .keep = static_cast<float>(1.0 - p),
              .scale = static_cast<float>(scale),
              .philox = philox_words(philox)},
             launch.grid_of((count + kBlock - 1) / kBlock));
  return {out, mask};
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_dropout", TORCH_FN(native_dropout));
  m.impl("native_dropout_backward", TORCH_FN(native_dropout_backward));
}

} // namespace
} // namespace torch_webgpu
