// The pointwise part of a GRU cell. What its gradient needs is kept: reset and update gate, the
// candidate, the old state, and the hidden state's part of the candidate. One invocation per element
// of the state; outputs are dense.
//
// @operand hy: out float
// @operand workspace: out like hy
// @operand x: in like hy // what the input adds to the gates
// @operand h: in like hy // what the hidden state adds
// @operand state: in like hy
// @operand bias_x: in like hy optional
// @operand bias_h: in like hy optional
// @require has_bias_x == has_bias_h

import package::rnn::cell::{Params, from_x, from_h, preactivation, old_state};
import package::rnn::elements::{main};

fn cell(i: u32, row: u32, column: u32) {
  let reset_gate = sigmoid_f(preactivation(row, column));
  let update_gate = sigmoid_f(preactivation(row, p.width + column));
  let recalled = from_h(row, 2u * p.width + column);
  let candidate = tanh_f(from_x(row, 2u * p.width + column) + reset_gate * recalled);
  let hx = old_state(row, column);
  store_hy(p.hy_at + i, candidate + update_gate * (hx - candidate));
  let place = p.workspace_at + row * 5u * p.width + column;
  store_workspace(place, reset_gate);
  store_workspace(place + p.width, update_gate);
  store_workspace(place + 2u * p.width, candidate);
  store_workspace(place + 3u * p.width, hx);
  store_workspace(place + 4u * p.width, recalled);
}
