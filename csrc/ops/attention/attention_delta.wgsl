// What the gradients of attention need of each query: the pair (lse, delta), where delta is the sum of the products of
// the result and its gradient. Eight invocations compute four rows together. They start the loads of all four before they use
// one. Behind the pairs: seed and offset of dropout.
//
// @operand pairs: out {bits64}
// @operand out: in {f32, f16, bf16, bits64, bits128} // raw bits: groups of four elements
// @operand g: in like out // gradient of the result
// @operand lse: in {f32}
// @operand seed: in {i64} optional
// @operand offset: in {i64} optional
// @const   bfloat: bool // halves in raw bits are bfloat16
// @require has_seed == has_offset
// @grid groups ceil_div(p.queries, 128) * p.heads * p.batches

import package::attention::groups::{from_halves};

struct Params {
  out_strides: vec4<u32>, // of batch, head, row and dimension
  g_strides: vec4<u32>,
  lse_batch: u32,         // strides
  lse_head: u32,
  batches: u32,
  heads: u32,
  queries: u32,
  value_dims: u32,
}

const rows = 128u;
const lanes = 8u;
const teams = 32u;
const rows_each = rows / teams;
const pitch = lanes + 1u; // one is padding, against bank conflicts

var<workgroup> parts: array<f32, rows * pitch>;

// Four products of a row, from dimension d on. Behind the row's end they are zero.
fn products_of(out_at: u32, g_at: u32, d: u32) -> vec4<f32> {
  @if(out_is_bits128) {
    return bitcast<vec4<f32>>(load_out(p.out_at + (out_at + d) / 4u)) * bitcast<vec4<f32>>(load_g(p.g_at + (g_at + d) / 4u));
  }
  @elif(out_is_bits64) {
    return from_halves(load_out(p.out_at + (out_at + d) / 4u)) * from_halves(load_g(p.g_at + (g_at + d) / 4u));
  }
  @else {
    var products = vec4<f32>();
    for (var i = 0u; i < min(p.value_dims - d, 4u); i++) {
      products[i] = load_out(p.out_at + out_at + (d + i) * p.out_strides.w) * load_g(p.g_at + g_at + (d + i) * p.g_strides.w);
    }
    return products;
  }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let id = wid.y * workgroups.x + wid.x;
  let tiles = (p.queries + rows - 1u) / rows;
  let first = id % tiles * rows;
  let head = id / tiles % p.heads;
  let batch = id / tiles / p.heads;
  if (batch < p.batches) {
    var sums = array<vec4<f32>, rows_each>();
    for (var d = t % lanes * 4u; d < p.value_dims; d += lanes * 4u) {
      for (var i = 0u; i < rows_each; i++) {
        // Rows behind the last one read the last one, and are not stored.
        let row = min(first + i * teams + t / lanes, p.queries - 1u);
        sums[i] += products_of(batch * p.out_strides.x + head * p.out_strides.y + row * p.out_strides.z,
                               batch * p.g_strides.x + head * p.g_strides.y + row * p.g_strides.z, d);
      }
    }
    for (var i = 0u; i < rows_each; i++) {
      let sum = sums[i];
      parts[(i * teams + t / lanes) * pitch + t % lanes] = (sum.x + sum.y) + (sum.z + sum.w);
    }
  }
  workgroupBarrier();
  let row = first + t;
  if (t < rows && row < p.queries && batch < p.batches) {
    var delta = 0.0;
    for (var i = 0u; i < lanes; i++) {
      delta += parts[t * pitch + i];
    }
    let pair = vec2<f32>(load_lse(p.lse_at + batch * p.lse_batch + head * p.lse_head + row), delta);
    store_pairs(p.pairs_at + (batch * p.heads + head) * p.queries + row, bitcast<vec2<u32>>(pair));
  }
  @if(has_seed) {
    if (id == 0u && t == 0u) {
      let end = p.pairs_at + p.batches * p.heads * p.queries;
      store_pairs(end, load_seed(p.seed_at));
      store_pairs(end + 1u, load_offset(p.offset_at));
    }
  }
}
