// nll_loss and nll_loss2d; cross_entropy is composite of them.
#include <ATen/core/Reduction.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/nll_loss2d_backward.h>
#include <ATen/ops/nll_loss2d_forward.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>

#include <algorithm>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/registration.h"
#include "kernels/loss_nll.h"
#include "kernels/loss_nll_backward.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "launch/spatial_params.h"
#include "structured_ops.h"

namespace torch_webgpu {
namespace {

using at::OptionalTensorRef;
using at::Tensor;

// One workgroup sums up to this many terms by itself.
constexpr uint32_t kOneGroup = 8192;
constexpr uint32_t kMaxGroups = 1024;

// The operands that forward and backward share.
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

  // The parameters that both kernels share; `input` describes `x`.
  template <class Params>
  Params params(const Spatial& input, uint64_t count) const {
    TORCH_CHECK_NOT_IMPLEMENTED(input.numel() < uint64_t{1} << 31,
                                "nll_loss(): more than 2^31 elements");
    Params params;
    params.count = static_cast<uint32_t>(count);
    params.classes = input.channels();
    params.ignored_low = static_cast<uint32_t>(ignore_index);
    params.ignored_high = static_cast<uint32_t>(static_cast<uint64_t>(ignore_index) >> 32);
    params.reduction = static_cast<uint32_t>(reduction);
    params.size = sizes_of(input);
    set_strides(without_classes(label), params.label_step, params.label_batch);
    if (has_weight()) {
      params.weight_step = weight->dim() == 0 ? 0 : static_cast<uint32_t>(weight->stride(0));
    }
    return params;
  }

  bool has_weight() const { return weight.has_value() && weight->defined(); }

  template <class Launch>
  void add_operands(Launch& launch) const {
    launch.label(label);
    if (has_weight()) {
      launch.weight(*weight);
    }
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
  namespace kernel = kernels::loss_nll;
  check_types(problem);
  const Spatial input(problem.x, problem.dims);
  const uint64_t count = problem.without_classes(problem.label).numel();
  auto params = problem.params<kernel::Params>(input, count);
  set_strides(input, params.x_step, params.x_batch);
  set_strides(problem.without_classes(out), params.out_step, params.out_batch);

  // A single term without a reduction is computed as a sum of one term.
  const bool none = problem.reduction == at::Reduction::None && problem.x.dim() > 1;
  if (problem.reduction == at::Reduction::None && !none) {
    params.reduction = at::Reduction::Sum;
  }
  const bool staged = !none && count > kOneGroup;
  kernel::Launch launch(op);
  params.error = launch.error("nll_loss(): a target is out of bounds");
  launch.out(out).total(total).x(problem.x);
  problem.add_operands(launch);
  if (!staged) {
    launch.stage(kernel::Stage::whole);
    launch.run(params,
               none ? launch.grid_of(std::max<uint64_t>(count, 1)) : launch.grid_of_groups(1));
    return;
  }
  const uint64_t groups =
      std::min<uint64_t>((count / 8 + kernel::kWorkgroup - 1) / kernel::kWorkgroup, kMaxGroups);
  const Tensor partial = empty_webgpu({static_cast<int64_t>(groups), 2}, at::kFloat, out.device());
  launch.partial(partial).stage(kernel::Stage::parts);
  launch.run(params, launch.grid_of_groups(groups));
  kernel::Launch last(op);
  last.out(out).total(total).partial(partial).stage(kernel::Stage::rest);
  params.count = static_cast<uint32_t>(groups);
  last.run(params, last.grid_of_groups(1));
}

void backward(const char* op, const Problem& problem, const Tensor& grad_out, const Tensor& total) {
  namespace kernel = kernels::loss_nll_backward;
  check_types(problem);
  const Tensor& grad_x = problem.x;
  if (grad_x.numel() == 0) {
    return;
  }
  check_dtype(grad_out, grad_x.scalar_type());
  check_dtype(total, grad_x.scalar_type());
  const Spatial gradient(grad_x, problem.dims);
  auto params = problem.params<kernel::Params>(gradient, gradient.numel());
  set_strides(gradient, params.grad_x_step, params.grad_x_batch);
  set_strides(problem.without_classes(grad_out), params.grad_out_step, params.grad_out_batch);
  params.channels_last = gradient.channels_last() ? 1 : 0;
  kernel::Launch launch(op);
  launch.grad_x(grad_x).grad_out(grad_out).total(total);
  problem.add_operands(launch);
  launch.run(params, launch.grid_of(params.count));
}

// Checks the arguments of nll_loss2d.
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
  Tensor output = empty_webgpu({0}, self.scalar_type(), self.device());
  Tensor total_weight = empty_webgpu({}, self.scalar_type(), self.device());
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

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
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
