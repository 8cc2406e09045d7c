// LSTM and GRU cells: what remains of a step after its two matrix products, in one dispatch per
// direction. PyTorch builds nn.LSTM, nn.GRU and the cells of these.
#include <ATen/TensorUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>

#include "launch/dtypes.h"
#include "launch/kernel_call.h"
#include "ops/rnn/rnn_composed.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

constexpr PipelineFamily kLstm = PipelineFamily::kLstm;
constexpr PipelineFamily kLstmBackward = PipelineFamily::kLstmBackward;
constexpr PipelineFamily kGru = PipelineFamily::kGru;
constexpr PipelineFamily kGruBackward = PipelineFamily::kGruBackward;

using Words = std::array<uint32_t, 4>;

// Mirrors Params of rnn_lstm.wgsl and rnn_gru.wgsl.
struct Params {
  Words x;
  Words h;
  Words state;
  Words bias;
  uint32_t count;
  uint32_t width;
  uint32_t unused[2] = {};
};

// Mirrors Params of rnn_lstm_backward.wgsl.
struct LstmBackwardParams {
  Words grad_hy;
  Words grad_cy;
  Words cx;
  Words cy;
  Words gates;
  uint32_t count;
  uint32_t width;
  uint32_t unused[2] = {};
};

// Mirrors Params of rnn_gru_backward.wgsl.
struct GruBackwardParams {
  Words grad_hy;
  Words workspace;
  uint32_t count;
  uint32_t width;
  uint32_t unused[2] = {};
};

// Offset and strides of a matrix; nothing of what is missing.
Words place_of(const char* op, const Tensor& tensor) {
  return tensor.defined() ? place_words(op, tensor) : Words{};
}

// Nothing for float64 and complex types: see rnn_composed.h.
std::optional<DType> kernel_dtype(const char* op, const Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(type) || at::isComplexType(type), '"', op,
                              "\" not implemented for '", type, "'");
  return native_float_dtype(type);
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

// The arguments of a step. Both biases are there, or none is.
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

  Params params(int64_t parts) const {
    Params params{place_of(op, x),
                  place_of(op, h),
                  place_of(op, state),
                  {},
                  0,
                  static_cast<uint32_t>(state.size(1))};
    params.count = element_count(op, state, parts);
    if (has_bias()) {
      params.bias = {element_begin(bias_x), static_cast<uint32_t>(bias_x.stride(0)),
                     element_begin(bias_h), static_cast<uint32_t>(bias_h.stride(0))};
    }
    return params;
  }

  void add_inputs(KernelCall& call, std::string_view state_name, DType dtype) const {
    call.add_input("x", x, dtype);
    call.add_input("h", h, dtype);
    call.add_input(state_name, state, dtype);
    if (has_bias()) {
      call.add_input("bias_x", bias_x, dtype);
      call.add_input("bias_h", bias_h, dtype);
    }
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
  const auto dtype = kernel_dtype(op, input_gates);
  if (!dtype) {
    return composed_lstm(step.x, step.h, cx, step.bias_x, step.bias_h);
  }
  Tensor hy = dense_like(cx);
  Tensor cy = dense_like(cx);
  Tensor workspace = dense_like(input_gates);
  if (cx.numel() != 0) {
    KernelCall call(op, "rnn_lstm");
    call.add_output("hy", hy, *dtype);
    call.add_output("cy", cy, *dtype);
    call.add_output("gates", workspace, *dtype);
    step.add_inputs(call, "cx", *dtype);
    call.run({kLstm, step.has_bias(), 0}, step.params(kLstmGates), cx.numel(), [&] {
      return step.has_bias()
                 ? KernelCall::Hooks{}
                 : KernelCall::Hooks{{"bias", "fn bias(column: u32) -> f32 { return 0.0; }"}};
    });
  }
  return {hy, cy, workspace};
}

void run_lstm_backward(const char* op, DType dtype, const Tensor& grad_hy, const Tensor& grad_cy,
                       const Tensor& cx, const Tensor& cy, const Tensor& workspace,
                       const Tensor& grad_gates, const Tensor& grad_cx) {
  const LstmBackwardParams params = {place_of(op, grad_hy),
                                     place_of(op, grad_cy),
                                     place_of(op, cx),
                                     place_of(op, cy),
                                     place_of(op, workspace),
                                     element_count(op, cx, kLstmGates),
                                     static_cast<uint32_t>(cx.size(1))};
  KernelCall call(op, "rnn_lstm_backward");
  call.add_output("grad_gates", grad_gates, dtype);
  call.add_output("grad_cx", grad_cx, dtype);
  call.add_input("cx", cx, dtype);
  call.add_input("cy", cy, dtype);
  call.add_input("gates", workspace, dtype);
  if (grad_hy.defined()) {
    call.add_input("grad_hy", grad_hy, dtype);
  }
  if (grad_cy.defined()) {
    call.add_input("grad_cy", grad_cy, dtype);
  }
  const uint64_t variant = (grad_hy.defined() ? 1u : 0u) | (grad_cy.defined() ? 2u : 0u);
  call.run({kLstmBackward, variant, 0}, params, cx.numel(), [&] {
    KernelCall::Hooks hooks;
    const std::string zero = "(row: u32, column: u32) -> f32 { return 0.0; }";
    if (!grad_hy.defined()) {
      hooks.emplace_back("grad_hy", "fn grad_hy" + zero);
    }
    if (!grad_cy.defined()) {
      hooks.emplace_back("grad_cy", "fn grad_cy" + zero);
    }
    return hooks;
  });
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
  if (const auto dtype = kernel_dtype(op, workspace)) {
    grad_gates = dense_like(workspace);
    grad_cx = dense_like(cx);
    if (cx.numel() != 0) {
      run_lstm_backward(op, *dtype, grad_hy, grad_cy, cx, cy, workspace, grad_gates, grad_cx);
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
  const auto dtype = kernel_dtype(op, input_gates);
  if (!dtype) {
    return composed_gru(step.x, step.h, hx, step.bias_x, step.bias_h);
  }
  Tensor hy = dense_like(hx);
  Tensor workspace = at::empty({hx.size(0), hx.size(1) * kGruKept}, hx.options());
  if (hx.numel() != 0) {
    KernelCall call(op, "rnn_gru");
    call.add_output("hy", hy, *dtype);
    call.add_output("workspace", workspace, *dtype);
    step.add_inputs(call, "hx", *dtype);
    call.run({kGru, step.has_bias(), 0}, step.params(kGruKept), hx.numel(), [&] {
      return step.has_bias()
                 ? KernelCall::Hooks{}
                 : KernelCall::Hooks{{"bias", "fn bias_x(column: u32) -> f32 { return 0.0; }\n"
                                              "fn bias_h(column: u32) -> f32 { return 0.0; }"}};
    });
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

  // Both gradients in one tensor: one sum gives those of both biases.
  Tensor grad_gates;
  Tensor grad_hx;
  if (const auto dtype = kernel_dtype(op, workspace)) {
    grad_gates = at::empty({2, grad_hy.size(0), grad_hy.size(1) * kGruGates}, workspace.options());
    grad_hx = dense_like(grad_hy);
    if (grad_hy.numel() != 0) {
      const GruBackwardParams params = {place_of(op, grad_hy), place_of(op, workspace),
                                        element_count(op, grad_hy, 2 * kGruGates),
                                        static_cast<uint32_t>(grad_hy.size(1))};
      KernelCall call(op, "rnn_gru_backward");
      call.add_output("grad_gates", grad_gates, *dtype);
      call.add_output("grad_hx", grad_hx, *dtype);
      call.add_input("grad_hy", grad_hy, *dtype);
      call.add_input("workspace", workspace, *dtype);
      call.run({kGruBackward, 0, 0}, params, grad_hy.numel(), [] { return KernelCall::Hooks{}; });
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

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

} // namespace
} // namespace torch_webgpu
