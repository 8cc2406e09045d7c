#include "ops/rnn/rnn_composed.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/zeros_like.h>

namespace torch_webgpu {

using at::Tensor;

namespace {

Tensor biased(const Tensor& x, const Tensor& bias) { return bias.defined() ? x + bias : x; }

} // namespace

std::tuple<Tensor, Tensor, Tensor> composed_lstm(const Tensor& x, const Tensor& h, const Tensor& cx,
                                                 const Tensor& bias_x, const Tensor& bias_h) {
  const auto sums = (biased(x, bias_x) + biased(h, bias_h)).chunk(kLstmGates, 1);
  const Tensor in_gate = at::sigmoid(sums[0]);
  const Tensor forget_gate = at::sigmoid(sums[1]);
  const Tensor candidate = at::tanh(sums[2]);
  const Tensor out_gate = at::sigmoid(sums[3]);
  Tensor cy = forget_gate * cx + in_gate * candidate;
  Tensor hy = out_gate * at::tanh(cy);
  return {hy, cy, at::cat({in_gate, forget_gate, candidate, out_gate}, 1)};
}

std::tuple<Tensor, Tensor> composed_lstm_backward(const Tensor& grad_hy, const Tensor& grad_cy,
                                                  const Tensor& cx, const Tensor& cy,
                                                  const Tensor& workspace) {
  const auto gates = workspace.chunk(kLstmGates, 1);
  const Tensor squashed = at::tanh(cy);
  const Tensor grad_out = grad_hy.defined() ? grad_hy : at::zeros_like(cy);
  Tensor grad_state = at::tanh_backward(grad_out * gates[3], squashed);
  if (grad_cy.defined()) {
    grad_state = grad_state + grad_cy;
  }
  Tensor grad_gates = at::cat({at::sigmoid_backward(grad_state * gates[2], gates[0]),
                               at::sigmoid_backward(grad_state * cx, gates[1]),
                               at::tanh_backward(grad_state * gates[0], gates[2]),
                               at::sigmoid_backward(grad_out * squashed, gates[3])},
                              1);
  return {grad_gates, grad_state * gates[1]};
}

std::tuple<Tensor, Tensor> composed_gru(const Tensor& x, const Tensor& h, const Tensor& hx,
                                        const Tensor& bias_x, const Tensor& bias_h) {
  const auto from_x = biased(x, bias_x).chunk(kGruGates, 1);
  const auto from_h = biased(h, bias_h).chunk(kGruGates, 1);
  const Tensor reset_gate = at::sigmoid(from_x[0] + from_h[0]);
  const Tensor update_gate = at::sigmoid(from_x[1] + from_h[1]);
  const Tensor candidate = at::tanh(from_x[2] + reset_gate * from_h[2]);
  Tensor hy = candidate + update_gate * (hx - candidate);
  return {hy, at::cat({reset_gate, update_gate, candidate, hx, from_h[2]}, 1)};
}

std::tuple<Tensor, Tensor> composed_gru_backward(const Tensor& grad_hy, const Tensor& workspace) {
  const auto kept = workspace.chunk(kGruKept, 1);
  const Tensor grad_candidate = at::tanh_backward(grad_hy * (1 - kept[1]), kept[2]);
  const Tensor grad_reset = at::sigmoid_backward(grad_candidate * kept[4], kept[0]);
  const Tensor grad_update = at::sigmoid_backward(grad_hy * (kept[3] - kept[2]), kept[1]);
  const Tensor grad_recalled = grad_candidate * kept[0];
  Tensor grad_gates =
      at::cat({grad_reset, grad_update, grad_candidate, grad_reset, grad_update, grad_recalled}, 1);
  // From (row, 2 * 3 * width) to (2, row, 3 * width).
  grad_gates = grad_gates.view({grad_hy.size(0), 2, kGruGates * grad_hy.size(1)}).transpose(0, 1);
  return {grad_gates.contiguous(), grad_hy * kept[1]};
}

} // namespace torch_webgpu
