// Gradients of a GRU cell by what input and hidden state add to its gates, and by the old state.
// One invocation per element of the state; outputs are dense.

struct Params {
  grad_hy: vec4<u32>, // offset, strides of row and column
  workspace: vec4<u32>, // as the forward pass kept it
  count: u32,
  width: u32, // of the state
}

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read_write> b1: array<f32>;
@group(0) @binding(2) var<storage, read> b2: array<f32>;
@group(0) @binding(3) var<storage, read> b3: array<f32>;
fn store_grad_gates(i: u32, v: f32) { b0[i] = v; }
fn store_grad_hx(i: u32, v: f32) { b1[i] = v; }
fn load_grad_hy(i: u32) -> f32 { return b2[i]; }
fn load_workspace(i: u32) -> f32 { return b3[i]; }
// @end

@group(0) @binding(31) var<uniform> p: Params;

fn kept(row: u32, column: u32) -> f32 {
  return load_workspace(matrix_index(p.workspace, row, column));
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
  let reset_gate = kept(row, column);
  let update_gate = kept(row, p.width + column);
  let candidate = kept(row, 2u * p.width + column);
  let hx = kept(row, 3u * p.width + column);
  let recalled = kept(row, 4u * p.width + column);
  let grad_hy = load_grad_hy(matrix_index(p.grad_hy, row, column));
  let grad_candidate = grad_hy * (1.0 - update_gate) * (1.0 - candidate * candidate);
  let grad_reset = grad_candidate * recalled * (1.0 - reset_gate) * reset_gate;
  let grad_update = grad_hy * (hx - candidate) * (1.0 - update_gate) * update_gate;
  store_grad_hx(i, grad_hy * update_gate);
  // First the gates of all rows as the input sees them, then as the hidden state does.
  let from_x = row * 3u * p.width + column;
  let from_h = p.count * 3u + from_x;
  store_grad_gates(from_x, grad_reset);
  store_grad_gates(from_x + p.width, grad_update);
  store_grad_gates(from_x + 2u * p.width, grad_candidate);
  store_grad_gates(from_h, grad_reset);
  store_grad_gates(from_h + p.width, grad_update);
  store_grad_gates(from_h + 2u * p.width, grad_candidate * reset_gate);
}
