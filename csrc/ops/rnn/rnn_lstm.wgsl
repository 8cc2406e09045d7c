// The pointwise part of an LSTM cell: gates are activated, applied to the cell state, and kept for
// the gradient. One invocation per element of the state; outputs are dense.

struct Params {
  x: vec4<u32>, // offset, strides of row and column: what the input adds to the gates
  h: vec4<u32>, // what the hidden state adds
  cx: vec4<u32>,
  bias: vec4<u32>, // offset and stride of either
  count: u32,
  width: u32, // of the state
}

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read_write> b1: array<f32>;
@group(0) @binding(2) var<storage, read_write> b2: array<f32>;
@group(0) @binding(3) var<storage, read> b3: array<f32>;
@group(0) @binding(4) var<storage, read> b4: array<f32>;
@group(0) @binding(5) var<storage, read> b5: array<f32>;
@group(0) @binding(6) var<storage, read> b6: array<f32>;
@group(0) @binding(7) var<storage, read> b7: array<f32>;
fn store_hy(i: u32, v: f32) { b0[i] = v; }
fn store_cy(i: u32, v: f32) { b1[i] = v; }
fn store_gates(i: u32, v: f32) { b2[i] = v; }
fn load_x(i: u32) -> f32 { return b3[i]; }
fn load_h(i: u32) -> f32 { return b4[i]; }
fn load_cx(i: u32) -> f32 { return b5[i]; }
fn load_bias_x(i: u32) -> f32 { return b6[i]; }
fn load_bias_h(i: u32) -> f32 { return b7[i]; }
// @end

@group(0) @binding(31) var<uniform> p: Params;

// @hook bias
fn bias(column: u32) -> f32 {
  return load_bias_x(p.bias.x + column * p.bias.y) + load_bias_h(p.bias.z + column * p.bias.w);
}
// @end

fn preactivation(row: u32, column: u32) -> f32 {
  return load_x(matrix_index(p.x, row, column)) +
         load_h(matrix_index(p.h, row, column)) + bias(column);
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
  let in_gate = sigmoid_f(preactivation(row, column));
  let forget_gate = sigmoid_f(preactivation(row, p.width + column));
  let candidate = tanh_f(preactivation(row, 2u * p.width + column));
  let out_gate = sigmoid_f(preactivation(row, 3u * p.width + column));
  let cx = load_cx(matrix_index(p.cx, row, column));
  let cy = forget_gate * cx + in_gate * candidate;
  store_cy(i, cy);
  store_hy(i, out_gate * tanh_f(cy));
  let place = row * 4u * p.width + column;
  store_gates(place, in_gate);
  store_gates(place + p.width, forget_gate);
  store_gates(place + 2u * p.width, candidate);
  store_gates(place + 3u * p.width, out_gate);
}
