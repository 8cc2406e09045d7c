// Softmax, log-softmax and their gradients.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/_softmax_ops.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/log.h>
#include <ATen/ops/sum.h>
#include <c10/core/WrapDimMinimal.h>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/tensor.h"
#include "kernels/softmax_rows.h"
#include "kernels/softmax_vectors.h"
#include "launch/dtypes.h"
#include "launch/halves.h"
#include "launch/row_lanes.h"
#include "launch/target_scope.h"
#include "structured_ops.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
namespace kernel = kernels::softmax_rows;

// The same from reductions and pointwise operators, for rows that no kernel can count.
Tensor composed(kernel::Math math, const Tensor& x, const Tensor* w, int64_t dim) {
  const Tensor from = x.to(at::kFloat);
  switch (math) {
  case kernel::Math::softmax: {
    const Tensor powers = at::exp(from - at::amax(from, dim, true));
    return powers / at::sum(powers, dim, true);
  }
  case kernel::Math::log_softmax: {
    const Tensor below = from - at::amax(from, dim, true);
    return below - at::log(at::sum(at::exp(below), dim, true));
  }
  case kernel::Math::softmax_gradient:
    return (from - at::sum(from * *w, dim, true)) * *w;
  default:
    return from - at::exp(w->to(at::kFloat)) * at::sum(from, dim, true);
  }
}

constexpr uint32_t kMaxVectorElements = 32; // of a row that an invocation keeps in registers

// For contiguous rows of aligned vectors. `w` may be undefined.
void run_vectors(const char* op, kernel::Math math, const Tensor& y, const Tensor& x,
                 const Tensor& w, uint32_t rows, uint32_t length) {
  namespace vectors_kernel = kernels::softmax_vectors;
  const auto vectors = static_cast<uint32_t>(length * y.itemsize() / kVectorBytes);
  const RowLanes lanes(vectors, /*inner=*/1, /*elements_per_lane=*/2);
  vectors_kernel::Launch launch(op);
  launch.y_as(DType::kBits128, y).x_as(DType::kBits128, x);
  if (w.defined()) {
    launch.w_as(DType::kBits128, w);
  }
  launch.dtype(vector_dtype<vectors_kernel::Dtype>(y));
  launch.math(static_cast<vectors_kernel::Math>(math)).items(lanes.items(vectors, 1)).alone(false);
  launch.run({.rows = rows, .vectors = vectors, .lanes_log2 = lanes.lanes_log2});
}

// `x` is the input, or the gradient of the output; `w` the output in the gradients.
void run(const char* op, kernel::Math math, const Tensor& y, const Tensor& x, const Tensor* w,
         int64_t dim) {
  if (x.numel() == 0) {
    return;
  }
  // The kernel finds a row by its place in a contiguous tensor.
  if (!y.is_contiguous()) {
    const Tensor contiguous = empty_webgpu(y.sizes(), y.scalar_type(), y.device());
    run(op, math, contiguous, x, w, dim);
    y.copy_(contiguous);
    return;
  }
  const int64_t d = c10::maybe_wrap_dim(dim, x.dim());
  if (!is_countable(x)) {
    const auto part = [&](int64_t along, int64_t begin, int64_t size) {
      const Tensor of_w = w != nullptr ? w->narrow(along, begin, size) : Tensor();
      run(op, math, y.narrow(along, begin, size), x.narrow(along, begin, size),
          w != nullptr ? &of_w : nullptr, dim);
    };
    if (!in_halves(x.sizes(), d, part)) {
      y.copy_(composed(math, x, w, d));
    }
    return;
  }
  const auto length = static_cast<uint32_t>(x.dim() == 0 ? 1 : x.size(d));
  const auto inner =
      static_cast<uint32_t>(x.dim() == 0 ? 1 : c10::multiply_integers(x.sizes().slice(d + 1)));
  const auto rows = static_cast<uint32_t>(x.numel() / length);
  const bool alone = RowLanes::suits_one(length, plan_target(x));
  const RowLanes lanes = alone ? RowLanes::one() : RowLanes(length, inner);
  const bool pairs = y.itemsize() == 2 && inner == 1 && length % 2 == 0 && byte_offset(y) % 4 == 0;

  const Tensor from = x.contiguous();
  const Tensor output = w != nullptr ? w->contiguous() : Tensor();
  if (const auto limit = static_cast<uint32_t>(kMaxVectorElements * y.itemsize() / kVectorBytes);
      inner == 1 && !alone &&
      are_row_vectors(rows, length, y, {&from, &output}, limit * RowLanes::kWorkgroup)) {
    run_vectors(op, math, y, from, output, rows, length);
    return;
  }
  kernel::Launch launch(op);
  launch.y(y).x(from);
  if (w != nullptr) {
    launch.w(output);
  }
  if (pairs) {
    launch.own_words_of_y();
  }
  launch.math(math).alone(alone);
  // Gradients keep elements of two inputs in registers, so half as many of each. One lane reads
  // its row again: it would not keep much of it.
  const uint32_t most = alone ? 2 : RowLanes::kMaxItems / (w != nullptr ? 2 : 1);
  launch.items(lanes.items(length, pairs ? 2 : 1, most));
  launch.run({.rows = rows,
              .length = length,
              .inner = inner,
              .lanes_log2 = lanes.lanes_log2,
              .lanes_first = lanes.lanes_first});
}

} // namespace

void structured__softmax_out::impl(const Tensor& self, int64_t dim, bool half_to_float,
                                   const Tensor& out) {
  if (!is_native_float(self) || !is_native_float(out)) {
    out.copy_(call_cpu_fallback<at::_ops::_softmax>::call(self, dim, half_to_float));
    return;
  }
  run("_softmax", kernel::Math::softmax, out, self, nullptr, dim);
}

void structured__log_softmax_out::impl(const Tensor& self, int64_t dim, bool half_to_float,
                                       const Tensor& out) {
  if (!is_native_float(self) || !is_native_float(out)) {
    out.copy_(call_cpu_fallback<at::_ops::_log_softmax>::call(self, dim, half_to_float));
    return;
  }
  run("_log_softmax", kernel::Math::log_softmax, out, self, nullptr, dim);
}

void structured__softmax_backward_data_out::impl(const Tensor& grad, const Tensor& output,
                                                 int64_t dim, at::ScalarType input_dtype,
                                                 const Tensor& grad_input) {
  if (!is_native_float(grad) || !is_native_float(output) || !is_native_float(grad_input)) {
    grad_input.copy_(
        call_cpu_fallback<at::_ops::_softmax_backward_data>::call(grad, output, dim, input_dtype));
    return;
  }
  run("_softmax_backward_data", kernel::Math::softmax_gradient, grad_input, grad, &output, dim);
}

void structured__log_softmax_backward_data_out::impl(const Tensor& grad, const Tensor& output,
                                                     int64_t dim, at::ScalarType input_dtype,
                                                     const Tensor& out) {
  if (!is_native_float(grad) || !is_native_float(output) || !is_native_float(out)) {
    out.copy_(call_cpu_fallback<at::_ops::_log_softmax_backward_data>::call(grad, output, dim,
                                                                            input_dtype));
    return;
  }
  run("_log_softmax_backward_data", kernel::Math::log_softmax_gradient, out, grad, &output, dim);
}

} // namespace torch_webgpu
