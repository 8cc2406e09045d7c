// The pointwise part of a GRU cell. What its gradient needs is kept: reset and update gate, the
// candidate, the old state, and the hidden state's part of the candidate. One invocation per element
// of the state; outputs are dense.

struct Params {
  x: vec4<u32>, // offset, strides of row and column: what the input adds to the gates
  h: vec4<u32>, // what the hidden state adds
  hx: vec4<u32>,
  bias: vec4<u32>, // offset and stride of either
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
fn store_hy(i: u32, v: f32) { b0[i] = v; }
fn store_workspace(i: u32, v: f32) { b1[i] = v; }
fn load_x(i: u32) -> f32 { return b2[i]; }
fn load_h(i: u32) -> f32 { return b3[i]; }
fn load_hx(i: u32) -> f32 { return b4[i]; }
fn load_bias_x(i: u32) -> f32 { return b5[i]; }
fn load_bias_h(i: u32) -> f32 { return b6[i]; }
// @end

@group(0) @binding(31) var<uniform> p: Params;

// @hook bias
fn bias_x(column: u32) -> f32 { return load_bias_x(p.bias.x + column * p.bias.y); }
fn bias_h(column: u32) -> f32 { return load_bias_h(p.bias.z + column * p.bias.w); }
// @end

fn from_x(row: u32, column: u32) -> f32 {
  return load_x(matrix_index(p.x, row, column)) + bias_x(column);
}

fn from_h(row: u32, column: u32) -> f32 {
  return load_h(matrix_index(p.h, row, column)) + bias_h(column);
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
  let reset_gate = sigmoid_f(from_x(row, column) + from_h(row, column));
  let update_gate =
      sigmoid_f(from_x(row, p.width + column) + from_h(row, p.width + column));
  let recalled = from_h(row, 2u * p.width + column);
  let candidate = tanh_f(from_x(row, 2u * p.width + column) + reset_gate * recalled);
  let hx = load_hx(matrix_index(p.hx, row, column));
  store_hy(i, candidate + update_gate * (hx - candidate));
  let place = row * 5u * p.width + column;
  store_workspace(place, reset_gate);
  store_workspace(place + p.width, update_gate);
  store_workspace(place + 2u * p.width, candidate);
  store_workspace(place + 3u * p.width, hx);
  store_workspace(place + 4u * p.width, recalled);
}
