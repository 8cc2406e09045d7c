// LSTM and GRU cells: the part of a step after its two matrix products, with one dispatch forward
// and one backward. PyTorch builds nn.LSTM, nn.GRU and their cell modules of these operators.
#include <ATen/TensorUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum.h>

#include "backend/registration.h"
#include "kernels/rnn_gru.h"
#include "kernels/rnn_gru_backward.h"
#include "kernels/rnn_lstm.h"
#include "kernels/rnn_lstm_backward.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "ops/rnn/rnn_composed.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// The stride along a dimension; 0 for an undefined tensor.
uint32_t stride(const Tensor& tensor, int64_t dim) {
  return tensor.defined() ? static_cast<uint32_t>(tensor.stride(dim)) : 0;
}

// Whether the dtype has a kernel. float64 and complex types have none: see rnn_composed.h.
bool has_kernel(const char* op, const Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(type) || at::isComplexType(type), '"', op,
                              "\" not implemented for '", type, "'");
  return is_native_float(type);
}

uint32_t element_count(const char* op, const Tensor& state, int64_t parts) {
  TORCH_CHECK_NOT_IMPLEMENTED(state.numel() * parts < int64_t{1} << 31, op,
                              "(): more than 2^31 elements");
  return static_cast<uint32_t>(state.numel());
}

void check_dtypes(const Tensor& first, std::initializer_list<Tensor> others) {
  for (const Tensor& other : others) {
    TORCH_CHECK(!other.defined() || other.scalar_type() == first.scalar_type(),
                "expected scalar type ", first.scalar_type(), " but found ", other.scalar_type());
  }
}

// The arguments of a step. Either both biases are defined, or neither is.
struct Step {
  const char* op;
  const Tensor& x;
  const Tensor& h;
  const Tensor& state;
  Tensor bias_x;
  Tensor bias_h;

  Step(const char* op, const Tensor& x, const Tensor& h, const Tensor& state,
       const OptionalTensor& input_bias, const OptionalTensor& hidden_bias, int64_t gates)
      : op(op), x(x), h(h), state(state), bias_x(input_bias.value_or(Tensor())),
        bias_h(hidden_bias.value_or(Tensor())) {
    check_same_device(op, {{x, "input_gates"},
                           {h, "hidden_gates"},
                           {state, "prev_hidden"},
                           {bias_x, "input_bias"},
                           {bias_h, "hidden_bias"}});
    const at::TensorArg x_arg(x, "input_gates", 1);
    const at::TensorArg state_arg(state, "prev_hidden", 5);
    at::checkDim(op, x_arg, 2);
    at::checkSameSize(op, x_arg, {h, "hidden_gates", 2});
    if (has_bias()) {
      const at::TensorArg bias_arg(bias_x, "input_bias", 3);
      at::checkDim(op, bias_arg, 1);
      at::checkNumel(op, bias_arg, x.size(1));
      at::checkSameSize(op, bias_arg, {bias_h, "hidden_bias", 4});
    }
    at::checkDim(op, state_arg, 2);
    at::checkNumel(op, state_arg, x.numel() / gates);
    at::checkSize(op, state_arg, 0, x.size(0));
    at::checkSize(op, x_arg, 1, state.size(1) * gates);
    check_dtypes(x, {h, state, bias_x, bias_h});
  }

  bool has_bias() const { return bias_x.defined(); }

  // Adds the inputs and dispatches. `parts` is the number of values that the kernel keeps for each
  // element of the state.
  template <class Launch>
  void run(Launch& launch, int64_t parts) const {
    launch.x(x).h(h).state(state);
    if (has_bias()) {
      launch.bias_x(bias_x).bias_h(bias_h);
    }
    launch.run({.count = element_count(op, state, parts),
                .width = static_cast<uint32_t>(state.size(1)),
                .x_row = stride(x, 0),
                .x_column = stride(x, 1),
                .h_row = stride(h, 0),
                .h_column = stride(h, 1),
                .state_row = stride(state, 0),
                .state_column = stride(state, 1),
                .bias_x_step = stride(bias_x, 0),
                .bias_h_step = stride(bias_h, 0)},
               launch.grid_of(state.numel()));
  }
};

Tensor dense_like(const Tensor& tensor) {
  return at::empty_like(tensor, at::MemoryFormat::Contiguous);
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                             const Tensor& cx, const OptionalTensor& input_bias,
                                             const OptionalTensor& hidden_bias) {
  const char* op = "_thnn_fused_lstm_cell";
  const Step step(op, input_gates, hidden_gates, cx, input_bias, hidden_bias, kLstmGates);
  if (!has_kernel(op, input_gates)) {
    return composed_lstm(step.x, step.h, cx, step.bias_x, step.bias_h);
  }
  Tensor hy = dense_like(cx);
  Tensor cy = dense_like(cx);
  Tensor workspace = dense_like(input_gates);
  if (cx.numel() != 0) {
    kernels::rnn_lstm::Launch launch(op);
    launch.hy(hy).cy(cy).gates(workspace);
    step.run(launch, kLstmGates);
  }
  return {hy, cy, workspace};
}

void run_lstm_backward(const char* op, const Tensor& grad_hy, const Tensor& grad_cy,
                       const Tensor& cx, const Tensor& cy, const Tensor& workspace,
                       const Tensor& grad_gates, const Tensor& grad_cx) {
  kernels::rnn_lstm_backward::Launch launch(op);
  launch.grad_gates(grad_gates).grad_cx(grad_cx).cx(cx).cy(cy).gates(workspace);
  if (grad_hy.defined()) {
    launch.grad_hy(grad_hy);
  }
  if (grad_cy.defined()) {
    launch.grad_cy(grad_cy);
  }
  launch.run({.count = element_count(op, cx, kLstmGates),
              .width = static_cast<uint32_t>(cx.size(1)),
              .cx_row = stride(cx, 0),
              .cx_column = stride(cx, 1),
              .cy_row = stride(cy, 0),
              .cy_column = stride(cy, 1),
              .gates_row = stride(workspace, 0),
              .gates_column = stride(workspace, 1),
              .grad_hy_row = stride(grad_hy, 0),
              .grad_hy_column = stride(grad_hy, 1),
              .grad_cy_row = stride(grad_cy, 0),
              .grad_cy_column = stride(grad_cy, 1)},
             launch.grid_of(cx.numel()));
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const OptionalTensor& grad_hy_opt,
                                                      const OptionalTensor& grad_cy_opt,
                                                      const Tensor& cx, const Tensor& cy,
                                                      const Tensor& workspace, bool has_bias) {
  const char* op = "_thnn_fused_lstm_cell_backward";
  const Tensor grad_hy = grad_hy_opt.value_or(Tensor());
  const Tensor grad_cy = grad_cy_opt.value_or(Tensor());
  if (!grad_hy.defined() && !grad_cy.defined()) {
    return {};
  }
  check_same_device(op, {{grad_hy, "grad_hy"},
                         {grad_cy, "grad_cy"},
                         {cx, "cx"},
                         {cy, "cy"},
                         {workspace, "workspace"}});
  const at::TensorArg grad_hy_arg(grad_hy, "grad_hy", 1);
  const at::TensorArg grad_cy_arg(grad_cy, "grad_cy", 2);
  const at::TensorArg& grad = grad_hy.defined() ? grad_hy_arg : grad_cy_arg;
  at::checkDim(op, grad, 2);
  if (grad_cy.defined()) {
    at::checkSize(op, grad_cy_arg, grad->sizes());
  }
  at::checkSize(op, at::TensorArg(cx, "cx", 3), grad->sizes());
  at::checkSize(op, at::TensorArg(cy, "cy", 4), grad->sizes());
  at::checkSize(op, at::TensorArg(workspace, "workspace", 5),
                {cx.size(0), cx.size(1) * kLstmGates});
  check_dtypes(workspace, {grad_hy, grad_cy, cx, cy});

  Tensor grad_gates;
  Tensor grad_cx;
  if (has_kernel(op, workspace)) {
    grad_gates = dense_like(workspace);
    grad_cx = dense_like(cx);
    if (cx.numel() != 0) {
      run_lstm_backward(op, grad_hy, grad_cy, cx, cy, workspace, grad_gates, grad_cx);
    }
  } else {
    std::tie(grad_gates, grad_cx) = composed_lstm_backward(grad_hy, grad_cy, cx, cy, workspace);
  }
  return {grad_gates, grad_cx, has_bias ? grad_gates.sum(0) : Tensor()};
}

std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                    const Tensor& hx, const OptionalTensor& input_bias,
                                    const OptionalTensor& hidden_bias) {
  const char* op = "_thnn_fused_gru_cell";
  const Step step(op, input_gates, hidden_gates, hx, input_bias, hidden_bias, kGruGates);
  if (!has_kernel(op, input_gates)) {
    return composed_gru(step.x, step.h, hx, step.bias_x, step.bias_h);
  }
  Tensor hy = dense_like(hx);
  Tensor workspace = at::empty({hx.size(0), hx.size(1) * kGruKept}, hx.options());
  if (hx.numel() != 0) {
    kernels::rnn_gru::Launch launch(op);
    launch.hy(hy).workspace(workspace);
    step.run(launch, kGruKept);
  }
  return {hy, workspace};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>
gru_cell_backward(const Tensor& grad_hy, const Tensor& workspace, bool has_bias) {
  const char* op = "_thnn_fused_gru_cell_backward";
  check_same_device(op, {{grad_hy, "grad_hy"}, {workspace, "workspace"}});
  at::checkDim(op, at::TensorArg(grad_hy, "grad_hy", 1), 2);
  at::checkSize(op, at::TensorArg(workspace, "workspace", 2),
                {grad_hy.size(0), grad_hy.size(1) * kGruKept});
  check_dtypes(workspace, {grad_hy});

  // One tensor holds both gradients of the gates: one sum of it gives the gradients of both biases.
  Tensor grad_gates;
  Tensor grad_hx;
  if (has_kernel(op, workspace)) {
    grad_gates = at::empty({2, grad_hy.size(0), grad_hy.size(1) * kGruGates}, workspace.options());
    grad_hx = dense_like(grad_hy);
    if (grad_hy.numel() != 0) {
      kernels::rnn_gru_backward::Launch launch(op);
      launch.grad_gates(grad_gates).grad_hx(grad_hx).grad_hy(grad_hy).workspace(workspace);
      launch.run({.count = element_count(op, grad_hy, 2 * kGruGates),
                  .width = static_cast<uint32_t>(grad_hy.size(1)),
                  .grad_hy_row = stride(grad_hy, 0),
                  .grad_hy_column = stride(grad_hy, 1),
                  .workspace_row = stride(workspace, 0),
                  .workspace_column = stride(workspace, 1)},
                 launch.grid_of(grad_hy.numel()));
    }
  } else {
    std::tie(grad_gates, grad_hx) = composed_gru_backward(grad_hy, workspace);
  }
  Tensor grad_bias_x;
  Tensor grad_bias_h;
  if (has_bias) {
    const Tensor grad_biases = grad_gates.sum(1);
    grad_bias_x = grad_biases[0];
    grad_bias_h = grad_biases[1];
  }
  return {grad_gates[0], grad_gates[1], grad_hx, grad_bias_x, grad_bias_h};
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

} // namespace
} // namespace torch_webgpu
