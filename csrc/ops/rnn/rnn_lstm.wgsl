// The pointwise part of an LSTM cell: gates are activated, applied to the cell state, and kept for
// the gradient. One invocation per element of the state; outputs are dense.
//
// @operand hy: out float
// @operand cy: out like hy
// @operand gates: out like hy
// @operand x: in like hy // what the input adds to the gates
// @operand h: in like hy // what the hidden state adds
// @operand state: in like hy // of the cell, before the step
// @operand bias_x: in like hy optional
// @operand bias_h: in like hy optional
// @require has_bias_x == has_bias_h

import package::rnn::elements::{main};
import package::rnn::cell::{Params, preactivation, old_state};

fn cell(i: u32, row: u32, column: u32) {
  let in_gate = sigmoid_f(preactivation(row, column));
  let forget_gate = sigmoid_f(preactivation(row, p.width + column));
  let candidate = tanh_f(preactivation(row, 2u * p.width + column));
  let out_gate = sigmoid_f(preactivation(row, 3u * p.width + column));
  let cy = forget_gate * old_state(row, column) + in_gate * candidate;
  store_cy(p.cy_at + i, cy);
  store_hy(p.hy_at + i, out_gate * tanh_f(cy));
  let place = p.gates_at + row * 4u * p.width + column;
  store_gates(place, in_gate);
  store_gates(place + p.width, forget_gate);
  store_gates(place + 2u * p.width, candidate);
  store_gates(place + 3u * p.width, out_gate);
}
