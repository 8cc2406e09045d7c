// Fused optimizers: kernels on lists of tensors.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adagrad_ops.h>
#include <ATen/ops/_fused_adam_ops.h>
#include <ATen/ops/_fused_adamw_ops.h>
#include <ATen/ops/_fused_sgd_ops.h>

#include <cmath>
#include <optional>
#include <vector>

#include "backend/fallback.h"
#include "backend/registration.h"
#include "backend/tensor.h"
#include "kernels/adagrad.h"
#include "kernels/adam.h"
#include "kernels/sgd.h"
#include "launch/dtypes.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using at::TensorList;
using OptionalTensor = std::optional<Tensor>;

// The step of one optimizer; `Launch` is its kernel's.
template <class Launch, class Params>
class Step {
public:
  Step(const char* name, TensorList parameters, const OptionalTensor& grad_scale,
       const OptionalTensor& found_inf, TensorList gradients, bool maximize)
      : parameters_(parameters), launch(name) {
    launch.parameter(parameters).maximize(maximize);
    if (is_given(grad_scale)) {
      launch.scaled_gradient(gradients).grad_scale(as_number(*grad_scale, "grad_scale"));
    } else {
      launch.gradient(gradients);
    }
    if (is_given(found_inf)) {
      launch.found_inf(as_number(*found_inf, "found_inf"));
    }
  }

  void set_rate(double lr) { params.rate = static_cast<float>(lr); }
  void set_rate(const Tensor& lr) {
    if (is_webgpu(lr)) {
      launch.lr(as_number(lr, "lr"));
    } else {
      set_rate(lr.item<double>());
    }
  }
  void set_steps(TensorList steps) {
    for (const Tensor& step : steps) {
      steps_.push_back(as_number(step, "a state step"));
    }
    launch.step(steps_);
  }
  void run() { launch.run(params); }

private:
  static bool is_given(const OptionalTensor& tensor) {
    return tensor.has_value() && tensor->defined();
  }
  // Numbers may have been left on the CPU or in float64.
  Tensor as_number(const Tensor& tensor, const char* name) const {
    TORCH_CHECK(tensor.numel() == 1, launch.op(), ": expected ", name,
                " to be one number, but got a tensor of sizes ", tensor.sizes());
    return tensor.to(parameters_[0].device(), at::kFloat);
  }

  TensorList parameters_;
  std::vector<Tensor> steps_;

public:
  Launch launch;
  Params params{};
};

// `Op` is the ATen operator, for the CPU; `Rate` is double or const Tensor&.
template <class Op, class Rate, bool decoupled>
void fused_adam(TensorList self, TensorList grads, TensorList means, TensorList squares,
                TensorList max_squares, TensorList steps, Rate lr, double beta1, double beta2,
                double weight_decay, double eps, bool amsgrad, bool maximize,
                const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  if (self.empty()) {
    return;
  }
  if (!is_native_float(self[0])) {
    return call_cpu_fallback<Op>::call(self, grads, means, squares, max_squares, steps, lr, beta1,
                                       beta2, weight_decay, eps, amsgrad, maximize, grad_scale,
                                       found_inf);
  }
  Step<kernels::adam::Launch, kernels::adam::Params> step(
      decoupled ? "_fused_adamw_" : "_fused_adam_", self, grad_scale, found_inf, grads, maximize);
  step.launch.mean(means).square(squares).amsgrad(amsgrad).decoupled_decay(decoupled);
  if (amsgrad) {
    step.launch.max_square(max_squares);
  }
  step.set_steps(steps);
  step.set_rate(lr);
  step.params.weight_decay = static_cast<float>(weight_decay);
  step.params.eps = static_cast<float>(eps);
  step.params.beta1_rest = static_cast<float>(1 - beta1);
  step.params.beta2_rest = static_cast<float>(1 - beta2);
  step.params.log_beta1 = static_cast<float>(std::log(beta1));
  step.params.log_beta2 = static_cast<float>(std::log(beta2));
  step.run();
}

template <class Op, class Rate>
void fused_sgd(TensorList self, TensorList grads, TensorList buffers, double weight_decay,
               double momentum, Rate lr, double dampening, bool nesterov, bool maximize,
               bool is_first_step, const OptionalTensor& grad_scale,
               const OptionalTensor& found_inf) {
  if (self.empty()) {
    return;
  }
  if (!is_native_float(self[0])) {
    return call_cpu_fallback<Op>::call(self, grads, buffers, weight_decay, momentum, lr, dampening,
                                       nesterov, maximize, is_first_step, grad_scale, found_inf);
  }
  Step<kernels::sgd::Launch, kernels::sgd::Params> step("_fused_sgd_", self, grad_scale, found_inf,
                                                        grads, maximize);
  const bool has_momentum = !buffers.empty();
  if (has_momentum) {
    step.launch.buffer(buffers);
  }
  step.launch.nesterov(nesterov && has_momentum).first_step(is_first_step);
  step.set_rate(lr);
  step.params.weight_decay = static_cast<float>(weight_decay);
  step.params.momentum = static_cast<float>(momentum);
  step.params.dampening_rest = static_cast<float>(1 - dampening);
  step.run();
}

template <class Op, class Rate>
void fused_adagrad(TensorList self, TensorList grads, TensorList sums, TensorList steps, Rate lr,
                   double lr_decay, double weight_decay, double eps, bool maximize,
                   const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  if (self.empty()) {
    return;
  }
  if (!is_native_float(self[0])) {
    return call_cpu_fallback<Op>::call(self, grads, sums, steps, lr, lr_decay, weight_decay, eps,
                                       maximize, grad_scale, found_inf);
  }
  Step<kernels::adagrad::Launch, kernels::adagrad::Params> step("_fused_adagrad_", self, grad_scale,
                                                                found_inf, grads, maximize);
  step.launch.sum(sums);
  step.set_steps(steps);
  step.set_rate(lr);
  step.params.weight_decay = static_cast<float>(weight_decay);
  step.params.eps = static_cast<float>(eps);
  step.params.rate_decay = static_cast<float>(lr_decay);
  step.run();
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace at::_ops;
  m.impl("_fused_adam_", &fused_adam<_fused_adam_, double, false>);
  m.impl("_fused_adam_.tensor_lr", &fused_adam<_fused_adam__tensor_lr, const Tensor&, false>);
  m.impl("_fused_adamw_", &fused_adam<_fused_adamw_, double, true>);
  m.impl("_fused_adamw_.tensor_lr", &fused_adam<_fused_adamw__tensor_lr, const Tensor&, true>);
  m.impl("_fused_sgd_", &fused_sgd<_fused_sgd_, double>);
  m.impl("_fused_sgd_.tensor_lr", &fused_sgd<_fused_sgd__tensor_lr, const Tensor&>);
  m.impl("_fused_adagrad_", &fused_adagrad<_fused_adagrad_, double>);
  m.impl("_fused_adagrad_.tensor_lr", &fused_adagrad<_fused_adagrad__tensor_lr, const Tensor&>);
}

} // namespace
} // namespace torch_webgpu
