// Gradients of an LSTM cell by the sums that enter its gates and by the old cell state. One
// invocation per element of the state; outputs are dense.

struct Params {
  grad_hy: vec4<u32>, // offset, strides of row and column
  grad_cy: vec4<u32>,
  cx: vec4<u32>,
  cy: vec4<u32>,
  gates: vec4<u32>, // as the forward pass kept them
  count: u32,
  width: u32, // of the state
}

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read_write> b1: array<f32>;
@group(0) @binding(2) var<storage, read> b2: array<f32>;
@group(0) @binding(3) var<storage, read> b3: array<f32>;
@group(0) @binding(4) var<storage, read> b4: array<f32>;
@group(0) @binding(5) var<storage, read> b5: array<f32>;
@group(0) @binding(6) var<storage, read> b6: array<f32>;
fn store_grad_gates(i: u32, v: f32) { b0[i] = v; }
fn store_grad_cx(i: u32, v: f32) { b1[i] = v; }
fn load_cx(i: u32) -> f32 { return b2[i]; }
fn load_cy(i: u32) -> f32 { return b3[i]; }
fn load_gates(i: u32) -> f32 { return b4[i]; }
fn load_grad_hy(i: u32) -> f32 { return b5[i]; }
fn load_grad_cy(i: u32) -> f32 { return b6[i]; }
// @end

@group(0) @binding(31) var<uniform> p: Params;

// Either gradient may be missing.
// @hook grad_hy
fn grad_hy(row: u32, column: u32) -> f32 {
  return load_grad_hy(matrix_index(p.grad_hy, row, column));
}
// @end

// @hook grad_cy
fn grad_cy(row: u32, column: u32) -> f32 {
  return load_grad_cy(matrix_index(p.grad_cy, row, column));
}
// @end

fn gate(row: u32, column: u32) -> f32 {
  return load_gates(matrix_index(p.gates, row, column));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let i = (group.y * groups.x + group.x) * 256u + local;
  if (i >= p.count) {
    return;
  }
  let row = i / p.width;
  let column = i % p.width;
  let in_gate = gate(row, column);
  let forget_gate = gate(row, p.width + column);
  let candidate = gate(row, 2u * p.width + column);
  let out_gate = gate(row, 3u * p.width + column);
  let cx = load_cx(matrix_index(p.cx, row, column));
  let squashed = tanh_f(load_cy(matrix_index(p.cy, row, column)));
  let grad_out = grad_hy(row, column);
  let grad_state =
      grad_out * out_gate * (1.0 - squashed * squashed) + grad_cy(row, column);
  store_grad_cx(i, grad_state * forget_gate);
  let place = row * 4u * p.width + column;
  store_grad_gates(place, grad_state * candidate * (1.0 - in_gate) * in_gate);
  store_grad_gates(place + p.width, grad_state * cx * (1.0 - forget_gate) * forget_gate);
  store_grad_gates(place + 2u * p.width, grad_state * in_gate * (1.0 - candidate * candidate));
  store_grad_gates(place + 3u * p.width, grad_out * squashed * (1.0 - out_gate) * out_gate);
}
