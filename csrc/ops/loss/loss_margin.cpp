// multi_margin_loss and multilabel_margin_loss.
#include <ATen/core/Reduction.h>
#include <ATen/native/LossMulti.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/multi_margin_loss_backward_ops.h>
#include <ATen/ops/multi_margin_loss_ops.h>
#include <ATen/ops/multilabel_margin_loss_backward_ops.h>
#include <ATen/ops/multilabel_margin_loss_forward_ops.h>

#include <tuple>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/registration.h"
#include "kernels/loss_margin.h"
#include "launch/common.h"
#include "launch/dtypes.h"

namespace torch_webgpu {
namespace {

using at::Scalar;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// A matrix with a row per sample.
Tensor samples(const Tensor& tensor, int64_t count) {
  return tensor.dim() == 2 ? tensor : tensor.reshape({count, -1});
}

// The strides of the rows and columns of a matrix.
std::pair<uint32_t, uint32_t> strides(const Tensor& matrix) {
  return {static_cast<uint32_t>(matrix.stride(0)), static_cast<uint32_t>(matrix.stride(1))};
}

struct Margin {
  const char* op;
  const Tensor& x;
  const Tensor& target;
  int64_t frames;
  int64_t classes;
  bool squared = false;
  double margin = 1.0;
  Tensor weight = {};

  // Fills `out`, with one element per sample and class: the gradient if `gradient` (one element per
  // sample) is defined, else the terms of the loss.
  void run(const Tensor& out, double scale, const Tensor& gradient, const Tensor& marks) const {
    if (out.numel() == 0) {
      return;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(out.numel() < int64_t{1} << 31, op, "(): more than 2^31 elements");
    check_dtype(target, at::kLong);
    for (const Tensor& other : {weight, gradient}) {
      if (other.defined()) {
        check_dtype(other, x.scalar_type());
      }
    }
    const Tensor in = samples(x, frames);
    const Tensor labels = samples(target, frames);
    const Tensor rows = samples(out, frames);
    const Tensor weights = weight.defined() ? weight.reshape({-1}) : weight;
    const Tensor marked = marks.defined() ? samples(marks, frames) : marks;
    kernels::loss_margin::Launch launch(op);
    kernels::loss_margin::Params params;
    params.count = static_cast<uint32_t>(out.numel());
    params.classes = static_cast<uint32_t>(classes);
    params.targets = static_cast<uint32_t>(labels.size(1));
    params.squared = squared ? 1 : 0;
    params.margin = static_cast<float>(margin);
    params.scale = static_cast<float>(scale);
    params.error = launch.error(std::string(op) + "(): a target is out of range");
    launch.out(out).x(in).label(labels);
    std::tie(params.x_sample, params.x_class) = strides(in);
    std::tie(params.label_sample, params.label_step) = strides(labels);
    std::tie(params.out_sample, params.out_class) = strides(rows);
    if (gradient.defined()) {
      launch.gradient(gradient);
      params.gradient_sample = static_cast<uint32_t>(gradient.stride(0));
    }
    if (weight.defined()) {
      launch.weight(weights);
      params.weight_class = static_cast<uint32_t>(weights.stride(0));
    }
    if (marks.defined()) {
      launch.marks(marks);
      std::tie(params.marks_sample, params.marks_class) = strides(marked);
    }
    launch.run(params, launch.grid_of(params.count));
  }

  // The loss per sample, or their mean or sum.
  void loss(int64_t reduction, Tensor& out, const Tensor& marks) const {
    check_dtype(out, x.scalar_type());
    const Tensor parts = empty_webgpu({frames, classes}, at::kFloat, x.device());
    run(parts, 1.0 / static_cast<double>(classes), {}, marks);
    Tensor losses = parts.sum(1);
    if (reduction != at::Reduction::None) {
      losses = reduction == at::Reduction::Mean ? losses.mean() : losses.sum();
    }
    at::native::resize_output(out, x.dim() < 2 ? at::IntArrayRef() : losses.sizes());
    out.copy_(losses.reshape(out.sizes()));
  }

  void gradient(const Tensor& grad_output, int64_t reduction, Tensor& grad_input) const {
    check_dtype(grad_input, x.scalar_type());
    at::native::resize_output(grad_input, x.sizes());
    const bool mean = reduction == at::Reduction::Mean;
    const double parts = static_cast<double>(classes) * (mean ? static_cast<double>(frames) : 1.0);
    // A new dense tensor, which shares no memory with an input.
    const Tensor result = at::empty_like(x, at::MemoryFormat::Contiguous);
    run(result, 1.0 / parts, grad_output.reshape({-1}).expand({frames}), {});
    grad_input.copy_(result);
  }
};

Margin multi_margin(const char* op, const Tensor& self, const Tensor& target, const Scalar& p,
                    const Scalar& margin, const OptionalTensor& weight) {
  TORCH_CHECK(p.toLong() == 1 || p.toLong() == 2, "only p == 1 and p == 2 supported");
  int64_t frames = 0;
  int64_t classes = 0;
  at::native::multi_margin_loss_shape_check(frames, classes, self.dim(), self, target, weight);
  return {op,
          self,
          target,
          frames,
          classes,
          p.toLong() == 2,
          margin.toDouble(),
          weight.has_value() ? *weight : Tensor()};
}

Margin multilabel(const char* op, const Tensor& self, const Tensor& target) {
  int64_t frames = 0;
  int64_t classes = 0;
  at::native::multilabel_margin_loss_shape_check(frames, classes, self.dim(), self, target);
  return {op, self, target, frames, classes};
}

Tensor& multi_margin_loss_out(const Tensor& self, const Tensor& target, const Scalar& p,
                              const Scalar& margin, const OptionalTensor& weight, int64_t reduction,
                              Tensor& out) {
  check_same_device("multi_margin_loss_out", {{out, "out"}, {self, "self"}, {target, "target"}});
  if (!is_native_float(self)) {
    return call_cpu_fallback<at::_ops::multi_margin_loss_out>::call(self, target, p, margin, weight,
                                                                    reduction, out);
  }
  multi_margin("multi_margin_loss", self, target, p, margin, weight).loss(reduction, out, {});
  return out;
}

Tensor multi_margin_loss(const Tensor& self, const Tensor& target, const Scalar& p,
                         const Scalar& margin, const OptionalTensor& weight, int64_t reduction) {
  Tensor out = empty_webgpu({0}, self.options());
  return multi_margin_loss_out(self, target, p, margin, weight, reduction, out);
}

Tensor& multi_margin_loss_backward_out(const Tensor& grad_output, const Tensor& self,
                                       const Tensor& target, const Scalar& p, const Scalar& margin,
                                       const OptionalTensor& weight, int64_t reduction,
                                       Tensor& grad_input) {
  check_same_device("multi_margin_loss_backward_out", {{grad_input, "grad_input"},
                                                       {grad_output, "grad_output"},
                                                       {self, "self"},
                                                       {target, "target"}});
  if (!is_native_float(self)) {
    return call_cpu_fallback<at::_ops::multi_margin_loss_backward_grad_input>::call(
        grad_output, self, target, p, margin, weight, reduction, grad_input);
  }
  multi_margin("multi_margin_loss_backward", self, target, p, margin, weight)
      .gradient(grad_output, reduction, grad_input);
  return grad_input;
}

Tensor multi_margin_loss_backward(const Tensor& grad_output, const Tensor& self,
                                  const Tensor& target, const Scalar& p, const Scalar& margin,
                                  const OptionalTensor& weight, int64_t reduction) {
  Tensor grad_input = empty_webgpu({0}, self.options());
  return multi_margin_loss_backward_out(grad_output, self, target, p, margin, weight, reduction,
                                        grad_input);
}

std::tuple<Tensor&, Tensor&> multilabel_margin_loss_forward_out(const Tensor& self,
                                                                const Tensor& target,
                                                                int64_t reduction, Tensor& output,
                                                                Tensor& is_target) {
  check_same_device(
      "multilabel_margin_loss_forward_out",
      {{output, "output"}, {is_target, "is_target"}, {self, "self"}, {target, "target"}});
  if (!is_native_float(self)) {
    return call_cpu_fallback<at::_ops::multilabel_margin_loss_forward_output>::call(
        self, target, reduction, output, is_target);
  }
  const Margin problem = multilabel("multilabel_margin_loss_forward", self, target);
  check_dtype(is_target, self.scalar_type());
  const Tensor marks = at::empty(target.sizes(), self.options());
  problem.loss(reduction, output, marks);
  at::native::resize_output(is_target, target.sizes());
  is_target.copy_(marks);
  return {output, is_target};
}

std::tuple<Tensor, Tensor> multilabel_margin_loss_forward(const Tensor& self, const Tensor& target,
                                                          int64_t reduction) {
  Tensor output = empty_webgpu({0}, self.options());
  Tensor is_target = empty_webgpu({0}, self.options());
  multilabel_margin_loss_forward_out(self, target, reduction, output, is_target);
  return {output, is_target};
}

Tensor& multilabel_margin_loss_backward_out(const Tensor& grad_output, const Tensor& self,
                                            const Tensor& target, int64_t reduction,
                                            const Tensor& is_target, Tensor& grad_input) {
  check_same_device("multilabel_margin_loss_backward_out", {{grad_input, "grad_input"},
                                                            {grad_output, "grad_output"},
                                                            {self, "self"},
                                                            {target, "target"}});
  if (!is_native_float(self)) {
    return call_cpu_fallback<at::_ops::multilabel_margin_loss_backward_grad_input>::call(
        grad_output, self, target, reduction, is_target, grad_input);
  }
  multilabel("multilabel_margin_loss_backward", self, target)
      .gradient(grad_output, reduction, grad_input);
  return grad_input;
}

Tensor multilabel_margin_loss_backward(const Tensor& grad_output, const Tensor& self,
                                       const Tensor& target, int64_t reduction,
                                       const Tensor& is_target) {
  Tensor grad_input = empty_webgpu({0}, self.options());
  return multilabel_margin_loss_backward_out(grad_output, self, target, reduction, is_target,
                                             grad_input);
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("multi_margin_loss", TORCH_FN(multi_margin_loss));
  m.impl("multi_margin_loss.out", TORCH_FN(multi_margin_loss_out));
  m.impl("multi_margin_loss_backward", TORCH_FN(multi_margin_loss_backward));
  m.impl("multi_margin_loss_backward.grad_input", TORCH_FN(multi_margin_loss_backward_out));
  m.impl("multilabel_margin_loss_forward", TORCH_FN(multilabel_margin_loss_forward));
  m.impl("multilabel_margin_loss_forward.output", TORCH_FN(multilabel_margin_loss_forward_out));
  m.impl("multilabel_margin_loss_backward", TORCH_FN(multilabel_margin_loss_backward));
  m.impl("multilabel_margin_loss_backward.grad_input",
         TORCH_FN(multilabel_margin_loss_backward_out));
}

} // namespace
} // namespace torch_webgpu
