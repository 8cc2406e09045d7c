// Fused optimizers, by multi-tensor kernels.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adagrad_ops.h>
#include <ATen/ops/_fused_adam_ops.h>
#include <ATen/ops/_fused_adamw_ops.h>
#include <ATen/ops/_fused_sgd_ops.h>
#include <torch/library.h>

#include <bit>
#include <cmath>

#include "backend/fallback.h"
#include "backend/tensor.h"
#include "launch/dtypes.h"
#include "ops/foreach/foreach_launch.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using at::TensorList;
using OptionalTensor = std::optional<Tensor>;

enum class Algorithm : uint8_t { kAdam, kSgd, kAdagrad };

// Flags of a kernel, in its id.
enum Flag : uint32_t {
  kMaximize = 1,
  kGradScale = 2,
  kFoundInf = 4,
  kTensorLr = 8,
  kAmsgrad = 16,
  kDecoupledDecay = 32,
  kNesterov = 64,
  kFirstStep = 128,
  kMomentum = 256,
};

uint64_t id_of(Algorithm algorithm, uint32_t flags) {
  return uint64_t{1} << 40 | static_cast<uint64_t>(algorithm) << 32 | flags;
}

constexpr const char* kNoPrepare = "fn prepare(t: u32) {}\n";

// Scalars: lr, weight decay, eps, 1 - beta1, 1 - beta2, log(beta1), log(beta2).
// Roles: parameter, gradient, mean of gradients, of their squares, its maximum.
constexpr const char* kAdamBody = R"(
var<private> rates: AdamRates;
fn prepare(t: u32) {
  rates = adam_rates(learning_rate(), scalar(2u), step(t), scalar(5u), scalar(6u));
}
fn element(v: ptr<function, array<value_t, kRoles>>, t: u32) {
  if (skips()) { return; }
  var g = gradient(v);
  if (kDecoupledDecay) {
    (*v)[0] -= learning_rate() * scalar(1u) * (*v)[0];
  } else if (scalar(1u) != 0.0) {
    g += scalar(1u) * (*v)[0];
  }
  (*v)[2] += (g - (*v)[2]) * scalar(3u);
  (*v)[3] = (1.0 - scalar(4u)) * (*v)[3] + scalar(4u) * g * g;
  var square = (*v)[3];
  if (kAmsgrad) {
    square = max_f((*v)[kRoles - 1u], square);
    (*v)[kRoles - 1u] = square;
  }
  (*v)[0] -= adam_step_f((*v)[2], square, rates);
}
)";

// Scalars: lr, weight decay, momentum, 1 - dampening. Roles: parameter, gradient, momentum buffer.
constexpr const char* kSgdBody = R"(
fn element(v: ptr<function, array<value_t, kRoles>>, t: u32) {
  if (skips()) { return; }
  var g = gradient(v);
  if (scalar(1u) != 0.0) {
    g += scalar(1u) * (*v)[0];
  }
  if (kMomentum) {
    var buffer = g;
    if (!kFirstStep) {
      buffer = scalar(2u) * (*v)[kRoles - 1u] + scalar(3u) * g;
    }
    (*v)[kRoles - 1u] = buffer;
    g = select(buffer, g + scalar(2u) * buffer, kNesterov);
  }
  (*v)[0] -= learning_rate() * g;
}
)";

// Scalars: lr, weight decay, eps, lr decay. Roles: parameter, gradient, sum of squares.
constexpr const char* kAdagradBody = R"(
var<private> rate: f32;
fn prepare(t: u32) {
  rate = adagrad_rate_f(learning_rate(), scalar(3u), step(t));
}
fn element(v: ptr<function, array<value_t, kRoles>>, t: u32) {
  if (skips()) { return; }
  var g = gradient(v);
  if (scalar(1u) != 0.0) {
    g += scalar(1u) * (*v)[0];
  }
  (*v)[2] += g * g;
  (*v)[0] -= rate * div_f(g, sqrt_f((*v)[2]) + scalar(2u));
}
)";

std::string body(const MultiTensorOp& op) {
  const auto flags = static_cast<uint32_t>(op.id);
  const auto algorithm = static_cast<Algorithm>(op.id >> 32 & 0xff);
  auto constant = [&](const char* name, Flag flag) {
    return std::string("const ") + name + " = " + ((flags & flag) != 0 ? "true" : "false") + ";\n";
  };
  std::string text = constant("kAmsgrad", kAmsgrad) + constant("kDecoupledDecay", kDecoupledDecay) +
                     constant("kNesterov", kNesterov) + constant("kFirstStep", kFirstStep) +
                     constant("kMomentum", kMomentum);
  text += std::string("fn learning_rate() -> f32 { return ") +
          ((flags & kTensorLr) != 0 ? "lr()" : "scalar(0u)") + "; }\n";
  text += std::string("fn skips() -> bool { return ") +
          ((flags & kFoundInf) != 0 ? "found_inf() == 1.0" : "false") + "; }\n";
  // The unscaled gradient is kept, as other devices do.
  text += std::string("fn gradient(v: ptr<function, array<value_t, kRoles>>) -> f32 {\n") +
          ((flags & kGradScale) != 0 ? "  (*v)[1] = (*v)[1] / grad_scale();\n" : "") + "  return " +
          ((flags & kMaximize) != 0 ? "-(*v)[1]" : "(*v)[1]") + ";\n}\n";
  switch (algorithm) {
  case Algorithm::kAdam:
    return text + kAdamBody;
  case Algorithm::kSgd:
    return text + kNoPrepare + kSgdBody;
  default:
    return text + kAdagradBody;
  }
}

// Collects what an optimizer step is made of.
class Step {
public:
  Step(Algorithm algorithm, std::string_view name, TensorList parameters, TensorList gradients)
      : algorithm_(algorithm) {
    op_.name = name;
    op_.dtype = *native_dtype(parameters[0].scalar_type());
    op_.written = 1;
    op_.body = &body;
    add_role(parameters, true);
    add_role(gradients, false);
  }

  void flag(Flag flag, bool set) { flags_ |= set ? flag : 0u; }
  void add_role(TensorList tensors, bool written) {
    TORCH_CHECK(operands_.num_roles == 0 || tensors.size() == operands_.roles[0].size(), op_.name,
                ": tensor lists must have the same number of tensors");
    op_.read |= 1u << operands_.num_roles;
    op_.written |= (written ? 1u : 0u) << operands_.num_roles;
    operands_.roles[operands_.num_roles++] = tensors;
  }
  void add_steps(TensorList steps) {
    TORCH_CHECK(steps.size() == operands_.roles[0].size(), op_.name,
                ": tensor lists must have the same number of tensors");
    // Steps may have been left on the CPU or in float64.
    for (const Tensor& step : steps) {
      check_number(step, "a state step");
      steps_.push_back(step.to(operands_.roles[0][0].device(), at::kFloat));
    }
    operands_.steps = steps_;
  }
  void add_number(std::string_view name, const OptionalTensor& number, Flag set) {
    if (number.has_value() && number->defined()) {
      check_number(*number, name);
      operands_.shared[op_.num_shared] = number->to(operands_.roles[0][0].device(), at::kFloat);
      op_.shared[op_.num_shared++] = {name, DType::kF32};
      flag(set, true);
    }
  }
  void check_number(const Tensor& tensor, std::string_view name) const {
    TORCH_CHECK(tensor.numel() == 1, op_.name, ": expected ", name,
                " to be one number, but got a tensor of sizes ", tensor.sizes());
  }
  void set_rate(double lr) { set_scalar(0, lr); }
  void set_rate(const Tensor& lr) {
    if (is_webgpu(lr)) {
      add_number("lr", lr, kTensorLr);
    } else {
      set_scalar(0, lr.item<double>());
    }
  }
  void set_scalar(size_t index, double value) {
    write_scalar(value, DType::kF32, op_.scalars[index].data());
  }
  void scale(const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
    add_number("grad_scale", grad_scale, kGradScale);
    add_number("found_inf", found_inf, kFoundInf);
    op_.written |= (flags_ & kGradScale) != 0 ? 2u : 0u;
  }
  void run() {
    op_.id = id_of(algorithm_, flags_);
    multi_tensor_staged(op_, operands_);
  }

private:
  Algorithm algorithm_;
  uint32_t flags_ = 0;
  MultiTensorOp op_;
  MultiTensorOperands operands_;
  std::vector<Tensor> steps_;
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
  Step step(Algorithm::kAdam, decoupled ? "_fused_adamw_" : "_fused_adam_", self, grads);
  step.add_role(means, true);
  step.add_role(squares, true);
  if (amsgrad) {
    step.add_role(max_squares, true);
  }
  step.add_steps(steps);
  step.set_rate(lr);
  const double scalars[] = {weight_decay,   eps, 1 - beta1, 1 - beta2, std::log(beta1),
                            std::log(beta2)};
  for (size_t i = 0; i < std::size(scalars); ++i) {
    step.set_scalar(i + 1, scalars[i]);
  }
  step.flag(kAmsgrad, amsgrad);
  step.flag(kMaximize, maximize);
  step.flag(kDecoupledDecay, decoupled);
  step.scale(grad_scale, found_inf);
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
  Step step(Algorithm::kSgd, "_fused_sgd_", self, grads);
  if (!buffers.empty()) {
    step.add_role(buffers, true);
  }
  step.set_rate(lr);
  step.set_scalar(1, weight_decay);
  step.set_scalar(2, momentum);
  step.set_scalar(3, 1 - dampening);
  step.flag(kMomentum, !buffers.empty());
  step.flag(kNesterov, nesterov);
  step.flag(kMaximize, maximize);
  step.flag(kFirstStep, is_first_step);
  step.scale(grad_scale, found_inf);
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
  Step step(Algorithm::kAdagrad, "_fused_adagrad_", self, grads);
  step.add_role(sums, true);
  step.add_steps(steps);
  step.set_rate(lr);
  step.set_scalar(1, weight_decay);
  step.set_scalar(2, eps);
  step.set_scalar(3, lr_decay);
  step.flag(kMaximize, maximize);
  step.scale(grad_scale, found_inf);
  step.run();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
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
