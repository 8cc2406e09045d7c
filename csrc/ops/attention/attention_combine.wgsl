// Puts together what attention_decode.wgsl computed of the splits of the keys. An invocation computes one element.
//
// @operand out: out {f32, f16, bf16}
// @operand lse: out {f32}
// @operand parts: in {f32} // [batch, heads, queries, splits, value_dims + 2]: maximum, sum, sums of values
// @grid invocations p.batches * p.heads * p.queries * p.value_dims

struct Params {
  out_strides: vec4<u32>, // of batch, head, row and dimension
  lse_batch: u32,         // strides
  lse_head: u32,
  batches: u32,
  heads: u32,
  queries: u32,
  value_dims: u32,
  splits: u32,
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (wid.y * workgroups.x + wid.x) * 64u + t;
  let d = i % p.value_dims;
  let row = i / p.value_dims;
  if (row >= p.batches * p.heads * p.queries) {
    return;
  }
  let step = p.value_dims + 2u;
  let parts_at = p.parts_at + row * p.splits * step;
  var maximum = load_parts(parts_at);
  for (var s = 1u; s < p.splits; s++) {
    maximum = max_flat_f(maximum, load_parts(parts_at + s * step));
  }
  var sum = 0.0;
  var value = 0.0;
  for (var s = 0u; s < p.splits; s++) {
    let at = parts_at + s * step;
    let weight = exp_falling_f(load_parts(at) - maximum);
    sum = fma(load_parts(at + 1u), weight, sum);
    value = fma(load_parts(at + 2u + d), weight, value);
  }
  let unseen = sum == 0.0 && is_finite_f(maximum);
  let inverse = select(select(nan_f(), 1.0 / sum, is_finite_f(maximum)), 0.0, unseen);
  let query = row % p.queries;
  let head = row / p.queries % p.heads;
  let batch = row / p.queries / p.heads;
  store_out(p.out_at + batch * p.out_strides.x + head * p.out_strides.y + query * p.out_strides.z +
            d * p.out_strides.w, value * inverse);
  if (d == 0u) {
    store_lse(p.lse_at + batch * p.lse_batch + head * p.lse_head + query,
              select(select(nan_f(), maximum + log_f(sum), is_finite_f(maximum)), -inf_f(), unseen));
  }
}
