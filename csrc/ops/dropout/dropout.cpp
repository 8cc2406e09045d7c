// native_dropout: one dispatch forward, one backward.
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_dropout_backward_native.h>
#include <ATen/ops/native_dropout_ops.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "backend/fallback.h"
#include "backend/generator.h"
#include "backend/tensor.h"
#include "wgsl/kernel_source.h"
#include "ops/pointwise/pointwise.h"
#include "runtime/context.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

constexpr PipelineFamily kFamily = PipelineFamily::kDropout;
constexpr uint32_t kWorkgroup = 256;
constexpr uint32_t kBlock = 4; // elements per invocation

// As `Params` in dropout.wgsl.
struct Params {
  uint32_t count;
  uint32_t input_offset;
  float keep;
  float scale;
  std::array<uint32_t, 2> seed;
  std::array<uint32_t, 2> stream;
};

PipelineSpec make_pipeline(DType dtype) {
  const uint32_t lanes = 4 / info(dtype).bytes;
  KernelSource source;
  source.file = "dropout";
  source.operands = {
      {.name = "out", .dtype = dtype, .slot = 0, .writable = true, .owns_words = true},
      {.name = "mask", .dtype = DType::kBool, .slot = 1, .writable = true, .owns_words = true},
      {.name = "x", .dtype = dtype, .slot = 2}};
  source.hooks = {{"FORMAT", "const kLanes = " + std::to_string(lanes) +
                                 "u;\nfn bits_of(v: f32) -> u32 { return " + to_word(dtype, "v") +
                                 "; }"}};
  return build_kernel("native_dropout", source);
}

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
  // Memory order is as good as any: the order of the input's dimensions is kept (channels last,
  // say), gaps between its elements are not.
  const Tensor x =
      input.is_non_overlapping_and_dense() ? input : at::empty_like(input).copy_(input);
  const double scale = p == 1.0 ? 0.0 : 1.0 / (1.0 - p);
  Context& ctx = context();
  Tensor mask = at::empty_like(x, mask_options);
  if (buffer_of(x).size > ctx.device.caps().max_storage_binding_size) {
    mask.bernoulli_(1.0 - p); // this and the product split themselves
    return {native_dropout_backward(x, mask, scale), mask};
  }
  Tensor out = at::empty_like(x);
  const PhiloxState philox = generator_of(std::nullopt).philox_state(kBlock);
  Params params{};
  params.count = static_cast<uint32_t>(x.numel());
  params.input_offset = static_cast<uint32_t>(byte_offset(x) / x.itemsize());
  params.keep = static_cast<float>(1.0 - p);
  params.scale = static_cast<float>(scale);
  params.seed = philox.key_words();
  params.stream = philox.counter_words();
  const Pipeline& pipeline = ctx.pipelines.get({kFamily, static_cast<uint64_t>(*dtype), 0},
                                               [&] { return make_pipeline(*dtype); });
  ctx.stream.dispatch(pipeline, {{&buffer_of(out)}, {&buffer_of(mask)}, {&buffer_of(x)}}, params,
                      ctx.stream.grid_1d((params.count + kBlock - 1) / kBlock, kWorkgroup));
  return {out, mask};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_dropout", TORCH_FN(native_dropout));
  m.impl("native_dropout_backward", TORCH_FN(native_dropout_backward));
}

} // namespace
} // namespace torch_webgpu
