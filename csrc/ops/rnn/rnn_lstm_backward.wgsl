// Gradients of an LSTM cell with respect to the sums that enter its gates, and to the old cell state. One
// invocation per element of the state; outputs are dense.
//
// @operand grad_gates: out float
// @operand grad_cx: out like grad_gates
// @operand cx: in like grad_gates
// @operand cy: in like grad_gates
// @operand gates: in like grad_gates // as rnn_lstm kept them
// @operand grad_hy: in like grad_gates optional
// @operand grad_cy: in like grad_gates optional
// @require has_grad_hy || has_grad_cy

import package::rnn::elements::{main};

struct Params {
  count: u32,  // elements of the state
  width: u32,  // of the state
  cx_row: u32, // strides
  cx_column: u32,
  cy_row: u32,
  cy_column: u32,
  gates_row: u32,
  gates_column: u32,
  grad_hy_row: u32,
  grad_hy_column: u32,
  grad_cy_row: u32,
  grad_cy_column: u32,
}

fn gate(row: u32, column: u32) -> f32 {
  return load_gates(p.gates_at + row * p.gates_row + column * p.gates_column);
}

fn cell(i: u32, row: u32, column: u32) {
  let in_gate = gate(row, column);
  let forget_gate = gate(row, p.width + column);
  let candidate = gate(row, 2u * p.width + column);
  let out_gate = gate(row, 3u * p.width + column);
  let cx = load_cx(p.cx_at + row * p.cx_row + column * p.cx_column);
  let squashed = tanh_f(load_cy(p.cy_at + row * p.cy_row + column * p.cy_column));
  var grad_out = 0.0;
  @if(has_grad_hy) grad_out = load_grad_hy(p.grad_hy_at + row * p.grad_hy_row + column * p.grad_hy_column);
  var grad_state = grad_out * out_gate * (1.0 - squashed * squashed);
  @if(has_grad_cy) grad_state += load_grad_cy(p.grad_cy_at + row * p.grad_cy_row + column * p.grad_cy_column);
  store_grad_cx(p.grad_cx_at + i, grad_state * forget_gate);
  let place = p.grad_gates_at + row * 4u * p.width + column;
  store_grad_gates(place, grad_state * candidate * (1.0 - in_gate) * in_gate);
  store_grad_gates(place + p.width, grad_state * cx * (1.0 - forget_gate) * forget_gate);
  store_grad_gates(place + 2u * p.width, grad_state * in_gate * (1.0 - candidate * candidate));
  store_grad_gates(place + 3u * p.width, grad_out * squashed * (1.0 - out_gate) * out_gate);
}
