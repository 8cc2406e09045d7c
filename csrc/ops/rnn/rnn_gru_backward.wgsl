// Gradients of a GRU cell with respect to what input and hidden state add to its gates, and to the old state.
// One invocation per element of the state; outputs are dense.
//
// @operand grad_gates: out float
// @operand grad_hx: out like grad_gates
// @operand grad_hy: in like grad_gates
// @operand workspace: in like grad_gates // as rnn_gru kept it

import package::rnn::elements::{main};

struct Params {
  count: u32,       // elements of the state
  width: u32,       // of the state
  grad_hy_row: u32, // strides
  grad_hy_column: u32,
  workspace_row: u32,
  workspace_column: u32,
}

fn kept(row: u32, column: u32) -> f32 {
  return load_workspace(p.workspace_at + row * p.workspace_row + column * p.workspace_column);
}

fn cell(i: u32, row: u32, column: u32) {
  let reset_gate = kept(row, column);
  let update_gate = kept(row, p.width + column);
  let candidate = kept(row, 2u * p.width + column);
  let hx = kept(row, 3u * p.width + column);
  let recalled = kept(row, 4u * p.width + column);
  let grad_hy = load_grad_hy(p.grad_hy_at + row * p.grad_hy_row + column * p.grad_hy_column);
  let grad_candidate = grad_hy * (1.0 - update_gate) * (1.0 - candidate * candidate);
  let grad_reset = grad_candidate * recalled * (1.0 - reset_gate) * reset_gate;
  let grad_update = grad_hy * (hx - candidate) * (1.0 - update_gate) * update_gate;
  store_grad_hx(p.grad_hx_at + i, grad_hy * update_gate);
  // First the gradients of what the input adds to the gates, for all rows; then of what the hidden state adds.
  let from_x = p.grad_gates_at + row * 3u * p.width + column;
  let from_h = p.count * 3u + from_x;
  store_grad_gates(from_x, grad_reset);
  store_grad_gates(from_x + p.width, grad_update);
  store_grad_gates(from_x + 2u * p.width, grad_candidate);
  store_grad_gates(from_h, grad_reset);
  store_grad_gates(from_h + p.width, grad_update);
  store_grad_gates(from_h + 2u * p.width, grad_candidate * reset_gate);
}
