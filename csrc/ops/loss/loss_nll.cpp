// nll_loss and nll_loss2d; cross_entropy is composite of them.
#include <ATen/core/Reduction.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/nll_loss2d_backward.h>
#include <ATen/ops/nll_loss2d_forward.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <torch/library.h>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "launch/dtypes.h"
#include "launch/kernel_call.h"
#include "launch/spatial.h"
#include "structured_ops.h"

namespace torch_webgpu {
namespace {

using at::OptionalTensorRef;
using at::Tensor;

constexpr PipelineFamily kForward = PipelineFamily::kLossNll;
constexpr PipelineFamily kBackward = PipelineFamily::kLossNllBackward;
// One workgroup sums up to this many terms by itself.
constexpr uint32_t kOneGroup = 8192;
constexpr uint32_t kMaxGroups = 1024;

// Mirrors Params of loss_nll.wgsl and, with other names, of loss_nll_backward.wgsl.
struct Params {
  SpatialLayout x;
  SpatialLayout label;
  SpatialLayout out;
  Triple size; // extra: count
  uint32_t ignored[2];
  uint32_t classes;
  uint32_t error; // backward: channels_last
  uint32_t weight_offset = 0;
  uint32_t weight_step = 0;
  uint32_t total_offset = 0;
  uint32_t reduction;
};

// The operands that forward and backward have in common, after two of their own.
struct Problem {
  const Tensor& x; // (N, C, spatial...) or (C): the input, or its gradient
  const Tensor& label;
  OptionalTensorRef weight;
  int64_t reduction;
  int64_t ignore_index;
  int64_t dims;

  // The labels, or something else of their shape, with a channel dimension of size 1.
  Spatial without_classes(const Tensor& tensor) const {
    return Spatial(tensor.dim() == 0 ? tensor : tensor.unsqueeze(1), dims);
  }

  Params params(const Spatial& input, uint64_t count) const {
    TORCH_CHECK_NOT_IMPLEMENTED(input.numel() < uint64_t{1} << 31,
                                "nll_loss(): more than 2^31 elements");
    Params params;
    params.x = input.layout();
    params.label = without_classes(label).layout();
    params.size = input.sizes(static_cast<uint32_t>(count));
    params.ignored[0] = static_cast<uint32_t>(ignore_index);
    params.ignored[1] = static_cast<uint32_t>(static_cast<uint64_t>(ignore_index) >> 32);
    params.classes = input.channels();
    params.reduction = static_cast<uint32_t>(reduction);
    if (has_weight()) {
      params.weight_offset = static_cast<uint32_t>(byte_offset(*weight) / weight->itemsize());
      params.weight_step = weight->dim() == 0 ? 0 : static_cast<uint32_t>(weight->stride(0));
    }
    return params;
  }

  bool has_weight() const { return weight.has_value() && weight->defined(); }

  void add_operands(KernelCall& call) const {
    call.add_input("label", label, *native_dtype(label.scalar_type()));
    if (has_weight()) {
      call.add_input("weight", *weight, *native_dtype(weight->scalar_type()));
    }
  }

  KernelCall::Hooks hooks() const {
    KernelCall::Hooks hooks;
    if (label.scalar_type() == at::kByte) {
      hooks.emplace_back("label_at",
                         "fn label_at(i: u32) -> vec2<u32> { return l_from_i(load_label(i)); }");
    }
    if (has_weight()) {
      hooks.emplace_back("class_weight",
                         "fn class_weight(class_index: u32) -> f32 { return "
                         "load_weight(p.weight_offset + class_index * p.weight_step); }");
    }
    return hooks;
  }
};

void check_types(const Problem& problem) {
  TORCH_CHECK(problem.label.scalar_type() == at::kLong || problem.label.scalar_type() == at::kByte,
              "expected scalar type Long but found ", problem.label.scalar_type());
  if (problem.has_weight()) {
    check_dtype(*problem.weight, problem.x.scalar_type());
  }
}

void forward(const char* op, const Problem& problem, const Tensor& out, const Tensor& total) {
  check_types(problem);
  const DType dtype = *native_dtype(problem.x.scalar_type());
  const Spatial input(problem.x, problem.dims);
  const uint64_t count = problem.without_classes(problem.label).numel();
  Params params = problem.params(input, count);
  params.out = problem.without_classes(out).layout();
  params.total_offset = element_begin(total);

  // A single term is its own sum.
  const bool none = problem.reduction == at::Reduction::None && problem.x.dim() > 1;
  if (problem.reduction == at::Reduction::None && !none) {
    params.reduction = at::Reduction::Sum;
  }
  const bool staged = !none && count > kOneGroup;
  KernelCall call(op, "loss_nll");
  call.add_output("out", out, dtype);
  call.add_output("total", total, dtype);
  uint64_t invocations = none ? std::max<uint64_t>(count, 1) : KernelCall::kWorkgroup;
  Tensor partial;
  if (staged) {
    invocations = std::min(count / 8, uint64_t{KernelCall::kWorkgroup} * kMaxGroups);
    const int64_t groups = (invocations + KernelCall::kWorkgroup - 1) / KernelCall::kWorkgroup;
    partial = empty_webgpu({groups, 2}, at::kFloat);
    call.add_output("partial", partial, DType::kF32);
  }
  call.add_input("x", problem.x, dtype);
  problem.add_operands(call);
  params.error = call.check_indices("nll_loss(): a target is out of bounds");
  call.run({kForward, staged ? 1u : 0u, 0}, params, invocations, [&] {
    KernelCall::Hooks hooks = problem.hooks();
    if (staged) {
      hooks.emplace_back("deliver", "fn deliver(group: u32, sum: vec2<f32>) {\n"
                                    "  store_partial(group * 2u, sum.x);\n"
                                    "  store_partial(group * 2u + 1u, sum.y);\n}");
    }
    return hooks;
  });
  if (!staged) {
    return;
  }
  KernelCall last(op, "loss_nll");
  last.add_output("out", out, dtype);
  last.add_output("total", total, dtype);
  last.add_input("partial", partial, DType::kF32);
  params.size.extra = static_cast<uint32_t>(partial.size(0));
  last.run({kForward, 2, 0}, params, KernelCall::kWorkgroup, [] {
    return KernelCall::Hooks{
        {"label_at", ""},
        {"term", "fn term(i: u32) -> vec2<f32> {\n"
                 "  return vec2<f32>(load_partial(i * 2u), load_partial(i * 2u + 1u));\n}"}};
  });
}

void backward(const char* op, const Problem& problem, const Tensor& grad_out, const Tensor& total) {
  check_types(problem);
  const Tensor& grad_x = problem.x;
  if (grad_x.numel() == 0) {
    return;
  }
  const DType dtype = *native_dtype(grad_x.scalar_type());
  const Spatial gradient(grad_x, problem.dims);
  Params params = problem.params(gradient, gradient.numel());
  params.out = problem.without_classes(grad_out).layout();
  params.error = gradient.channels_last() ? 1 : 0;
  params.total_offset = element_begin(total);
  KernelCall call(op, "loss_nll_backward");
  call.add_output("grad_x", grad_x, dtype);
  call.add_input("grad_out", grad_out, dtype);
  call.add_input("total", total, dtype);
  problem.add_operands(call);
  call.run({kBackward, 0, 0}, params, gradient.numel(), [&] { return problem.hooks(); });
}

// What nll_loss2d is asked to work on.
void check_2d(const Tensor& self, const Tensor& target, const OptionalTensorRef& weight) {
  TORCH_CHECK(target.dim() == 3,
              "only batches of spatial targets supported (3D tensors) but got targets of size: : ",
              target.sizes());
  TORCH_CHECK(self.dim() == 4,
              "only batches of spatial inputs supported (4D tensors), but got input of size: ",
              self.sizes());
  TORCH_CHECK(!weight.has_value() || !weight->defined() || weight->numel() == self.size(1),
              "weight tensor should be defined either for all or no classes");
  TORCH_CHECK(self.size(0) == target.size(0) && self.size(2) == target.size(1) &&
                  self.size(3) == target.size(2),
              "size mismatch (got input: ", self.sizes(), " , target: ", target.sizes());
}

OptionalTensorRef reference(const std::optional<Tensor>& tensor) {
  return tensor.has_value() && tensor->defined() ? OptionalTensorRef(*tensor) : OptionalTensorRef();
}

std::tuple<Tensor&, Tensor&> nll_loss2d_forward_out(const Tensor& self, const Tensor& target,
                                                    const std::optional<Tensor>& weight,
                                                    int64_t reduction, int64_t ignore_index,
                                                    Tensor& output, Tensor& total_weight) {
  check_same_device(
      "nll_loss2d_forward_out",
      {{output, "output"}, {total_weight, "total_weight"}, {self, "self"}, {target, "target"}});
  if (!is_native_float(self)) {
    return call_cpu_fallback_symint<at::_ops::nll_loss2d_forward_output>::call(
        self, target, weight, reduction, ignore_index, output, total_weight);
  }
  const OptionalTensorRef class_weight = reference(weight);
  check_2d(self, target, class_weight);
  check_dtype(output, self.scalar_type());
  check_dtype(total_weight, self.scalar_type());
  const bool none = reduction == at::Reduction::None;
  at::native::resize_output(output, none ? target.sizes() : at::IntArrayRef());
  at::native::resize_output(total_weight, {});
  forward("nll_loss2d_forward", {self, target, class_weight, reduction, ignore_index, 2}, output,
          total_weight);
  return {output, total_weight};
}

std::tuple<Tensor, Tensor> nll_loss2d_forward(const Tensor& self, const Tensor& target,
                                              const std::optional<Tensor>& weight,
                                              int64_t reduction, int64_t ignore_index) {
  Tensor output = empty_webgpu({0}, self.scalar_type());
  Tensor total_weight = empty_webgpu({}, self.scalar_type());
  nll_loss2d_forward_out(self, target, weight, reduction, ignore_index, output, total_weight);
  return {output, total_weight};
}

Tensor& nll_loss2d_backward_out(const Tensor& grad_output, const Tensor& self, const Tensor& target,
                                const std::optional<Tensor>& weight, int64_t reduction,
                                int64_t ignore_index, const Tensor& total_weight,
                                Tensor& grad_input) {
  check_same_device("nll_loss2d_backward_out", {{grad_input, "grad_input"},
                                                {grad_output, "grad_output"},
                                                {self, "self"},
                                                {target, "target"},
                                                {total_weight, "total_weight"}});
  if (!is_native_float(self)) {
    return call_cpu_fallback_symint<at::_ops::nll_loss2d_backward_grad_input>::call(
        grad_output, self, target, weight, reduction, ignore_index, total_weight, grad_input);
  }
  const OptionalTensorRef class_weight = reference(weight);
  check_2d(self, target, class_weight);
  TORCH_CHECK(total_weight.numel() == 1,
              "expected total_weight to be a single element tensor, got: ", total_weight.sizes(),
              " (", total_weight.numel(), " elements)");
  if (reduction == at::Reduction::None) {
    TORCH_CHECK(grad_output.sizes() == target.sizes(),
                "size mismatch (got grad_output: ", grad_output.sizes(),
                " , target: ", target.sizes());
  } else {
    TORCH_CHECK(grad_output.dim() <= 1 && grad_output.numel() == 1,
                "Expected a single element grad_output tensor, but got: ", grad_output.sizes());
  }
  check_dtype(grad_input, self.scalar_type());
  if (at::native::resize_output(grad_input, self.sizes())) {
    grad_input.unsafeGetTensorImpl()->empty_tensor_restride(self.suggest_memory_format());
  }
  backward("nll_loss2d_backward", {grad_input, target, class_weight, reduction, ignore_index, 2},
           grad_output, total_weight);
  return grad_input;
}

Tensor nll_loss2d_backward(const Tensor& grad_output, const Tensor& self, const Tensor& target,
                           const std::optional<Tensor>& weight, int64_t reduction,
                           int64_t ignore_index, const Tensor& total_weight) {
  Tensor grad_input = empty_webgpu({0}, self.options());
  nll_loss2d_backward_out(grad_output, self, target, weight, reduction, ignore_index, total_weight,
                          grad_input);
  return grad_input;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("nll_loss2d_forward", TORCH_FN(nll_loss2d_forward));
  m.impl("nll_loss2d_forward.output", TORCH_FN(nll_loss2d_forward_out));
  m.impl("nll_loss2d_backward", TORCH_FN(nll_loss2d_backward));
  m.impl("nll_loss2d_backward.grad_input", TORCH_FN(nll_loss2d_backward_out));
}

std::optional<Tensor> optional_tensor(const OptionalTensorRef& tensor) {
  return tensor.has_value() ? std::optional<Tensor>(*tensor) : std::nullopt;
}

} // namespace

void structured_nll_loss_forward_out::impl(const Tensor& self, const Tensor& target,
                                           OptionalTensorRef weight, int64_t reduction,
                                           int64_t ignore_index, const Tensor& output,
                                           const Tensor& total_weight) {
  if (!is_native_float(self)) {
    call_cpu_fallback_symint<at::_ops::nll_loss_forward_output>::call(
        self, target, optional_tensor(weight), reduction, ignore_index, const_cast<Tensor&>(output),
        const_cast<Tensor&>(total_weight));
    return;
  }
  forward("nll_loss_forward", {self, target, weight, reduction, ignore_index, 0}, output,
          total_weight);
}

void structured_nll_loss_backward_out::impl(const Tensor& grad_output, const Tensor& self,
                                            const Tensor& target, OptionalTensorRef weight,
                                            int64_t reduction, int64_t ignore_index,
                                            const Tensor& total_weight, const Tensor& grad_input) {
  if (!is_native_float(self)) {
    call_cpu_fallback_symint<at::_ops::nll_loss_backward_grad_input>::call(
        grad_output, self, target, optional_tensor(weight), reduction, ignore_index, total_weight,
        const_cast<Tensor&>(grad_input));
    return;
  }
  backward("nll_loss_backward", {grad_input, target, weight, reduction, ignore_index, 0},
           grad_output, total_weight);
}

} // namespace torch_webgpu
