// Softmax, log-softmax and their gradients.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/_softmax_ops.h>
#include <c10/core/WrapDimMinimal.h>

#include <algorithm>
#include <bit>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/tensor.h"
#include "ops/dtypes.h"
#include "ops/kernel_args.h"
#include "ops/norm.h"
#include "structured_ops.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

enum class Softmax : uint32_t { kForward, kLogForward, kBackward, kLogBackward };

struct SoftmaxParams {
  uint32_t rows;
  uint32_t length;
  uint32_t inner;
  uint32_t lanes_log2;
  uint32_t lanes_first;
  uint32_t y_at;
  uint32_t x_at;
  uint32_t w_at;
};

constexpr PipelineFamily kFamily = PipelineFamily::kSoftmax;
constexpr uint32_t kMaxItems = 32; // registers for a row's elements

std::string math(Softmax op) {
  switch (op) {
  case Softmax::kForward:
    return R"(alias value_t = f32;
const shifts = true;
fn peak(v: value_t) -> f32 { return v; }
fn load(i: u32) -> value_t { return load_x(p.x_at + i); }
fn shifted(v: value_t, maximum: f32) -> value_t { return exp_f(v - maximum); }
fn weight(v: value_t) -> f32 { return v; }
fn result(v: value_t, sum: f32) -> f32 { return v / sum; })";
  case Softmax::kLogForward:
    return R"(alias value_t = f32;
const shifts = true;
fn peak(v: value_t) -> f32 { return v; }
fn load(i: u32) -> value_t { return load_x(p.x_at + i); }
fn shifted(v: value_t, maximum: f32) -> value_t { return v - maximum; }
fn weight(v: value_t) -> f32 { return exp_f(v); }
fn result(v: value_t, sum: f32) -> f32 { return v - log_f(sum); })";
  case Softmax::kBackward:
    return R"(alias value_t = vec2<f32>;
const shifts = false;
fn peak(v: value_t) -> f32 { return 0.0; }
fn load(i: u32) -> value_t { return vec2<f32>(load_x(p.x_at + i), load_w(p.w_at + i)); }
fn shifted(v: value_t, maximum: f32) -> value_t { return v; }
fn weight(v: value_t) -> f32 { return v.x * v.y; }
fn result(v: value_t, sum: f32) -> f32 { return (v.x - sum) * v.y; })";
  default:
    return R"(alias value_t = vec2<f32>;
const shifts = false;
fn peak(v: value_t) -> f32 { return 0.0; }
fn load(i: u32) -> value_t { return vec2<f32>(load_x(p.x_at + i), load_w(p.w_at + i)); }
fn shifted(v: value_t, maximum: f32) -> value_t { return v; }
fn weight(v: value_t) -> f32 { return v.x; }
fn result(v: value_t, sum: f32) -> f32 { return v.x - exp_f(v.y) * sum; })";
  }
}

// `x` is the input, or the gradient of the output; `w` the output in the gradients.
void run(const char* name, Softmax op, const Tensor& y, const Tensor& x, const Tensor* w,
         int64_t dim) {
  if (x.numel() == 0) {
    return;
  }
  // Rows are found by their place in a contiguous tensor.
  if (!y.is_contiguous()) {
    const Tensor packed = empty_webgpu(y.sizes(), y.scalar_type());
    run(name, op, packed, x, w, dim);
    y.copy_(packed);
    return;
  }
  const Tensor from = x.contiguous();
  const Tensor output = w != nullptr ? w->contiguous() : Tensor();
  const int64_t d = c10::maybe_wrap_dim(dim, x.dim());
  SoftmaxParams params{};
  params.length = static_cast<uint32_t>(x.dim() == 0 ? 1 : x.size(d));
  params.inner =
      static_cast<uint32_t>(x.dim() == 0 ? 1 : c10::multiply_integers(x.sizes().slice(d + 1)));
  TORCH_CHECK_NOT_IMPLEMENTED(x.numel() < int64_t{1} << 31, name, "(): more than 2^31 elements");
  params.rows = static_cast<uint32_t>(x.numel() / params.length);
  const RowLanes lanes(params.length, params.inner, 4);
  params.lanes_log2 = lanes.lanes_log2;
  params.lanes_first = lanes.lanes_first;

  const bool pairs =
      y.itemsize() == 2 && params.inner == 1 && params.length % 2 == 0 && byte_offset(y) % 4 == 0;
  KernelArgs args(name);
  params.y_at = args.add("y", y, true, pairs);
  params.x_at = args.add("x", from);
  if (w != nullptr) {
    params.w_at = args.add("w", output);
  }
  const uint32_t items =
      std::clamp(std::bit_ceil((params.length + lanes.lanes() - 1) / lanes.lanes()),
                 pairs ? 2u : 1u, w != nullptr ? kMaxItems / 2 : kMaxItems);
  const uint64_t variant = static_cast<uint64_t>(op) | static_cast<uint64_t>(pairs) << 8 |
                           static_cast<uint64_t>(items) << 16;
  args.dispatch(kFamily, variant, "softmax", params,
                stream().grid_1d(lanes.workgroups(params.rows), 1), [&](KernelSource& source) {
                  source.hooks.emplace_back("items",
                                            "const items = " + std::to_string(items) + "u;");
                  source.hooks.emplace_back("math", math(op));
                  if (pairs) {
                    source.hooks.emplace_back("put", put_pairs(y.scalar_type(), args.slot(0)));
                  }
                });
}

} // namespace

void structured__softmax_out::impl(const Tensor& self, int64_t dim, bool half_to_float,
                                   const Tensor& out) {
  if (!is_native_float(self) || !is_native_float(out)) {
    out.copy_(call_cpu_fallback<at::_ops::_softmax>::call(self, dim, half_to_float));
    return;
  }
  run("_softmax", Softmax::kForward, out, self, nullptr, dim);
}

void structured__log_softmax_out::impl(const Tensor& self, int64_t dim, bool half_to_float,
                                       const Tensor& out) {
  if (!is_native_float(self) || !is_native_float(out)) {
    out.copy_(call_cpu_fallback<at::_ops::_log_softmax>::call(self, dim, half_to_float));
    return;
  }
  run("_log_softmax", Softmax::kLogForward, out, self, nullptr, dim);
}

void structured__softmax_backward_data_out::impl(const Tensor& grad, const Tensor& output,
                                                 int64_t dim, at::ScalarType input_dtype,
                                                 const Tensor& grad_input) {
  if (!is_native_float(grad) || !is_native_float(output) || !is_native_float(grad_input)) {
    grad_input.copy_(
        call_cpu_fallback<at::_ops::_softmax_backward_data>::call(grad, output, dim, input_dtype));
    return;
  }
  run("_softmax_backward_data", Softmax::kBackward, grad_input, grad, &output, dim);
}

void structured__log_softmax_backward_data_out::impl(const Tensor& grad, const Tensor& output,
                                                     int64_t dim, at::ScalarType input_dtype,
                                                     const Tensor& out) {
  if (!is_native_float(grad) || !is_native_float(output) || !is_native_float(out)) {
    out.copy_(call_cpu_fallback<at::_ops::_log_softmax_backward_data>::call(grad, output, dim,
                                                                            input_dtype));
    return;
  }
  run("_log_softmax_backward_data", Softmax::kLogBackward, out, grad, &output, dim);
}

} // namespace torch_webgpu
