// What the gradients of attention need of each query: the pair (lse, delta), where delta is the sum of the products of
// the result and its gradient. 16 invocations share a row. Behind the pairs: seed and offset of dropout.
//
// @operand pairs: out {bits64}
// @operand out: in {f32, f16, bf16}
// @operand g: in like out // gradient of the result
// @operand lse: in {f32}
// @operand seed: in {i64} optional
// @operand offset: in {i64} optional
// @require has_seed == has_offset
// @grid groups ceil_div(p.queries, 16) * p.heads * p.batches

import package::norm::row::{row_sum};

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

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let id = wid.y * workgroups.x + wid.x;
  let tiles = (p.queries + 15u) / 16u;
  let row = id % tiles * 16u + t / 16u;
  let head = id / tiles % p.heads;
  let batch = id / tiles / p.heads;
  let is_row = row < p.queries && batch < p.batches;
  var sum = 0.0;
  if (is_row) {
    let out_at = p.out_at + batch * p.out_strides.x + head * p.out_strides.y + row * p.out_strides.z;
    let g_at = p.g_at + batch * p.g_strides.x + head * p.g_strides.y + row * p.g_strides.z;
    for (var d = t % 16u; d < p.value_dims; d += 16u) {
      sum = fma(load_out(out_at + d * p.out_strides.w), load_g(g_at + d * p.g_strides.w), sum);
    }
  }
  let delta = row_sum(sum, t, 1u, t % 16u, 16u);
  if (is_row && t % 16u == 0u) {
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
