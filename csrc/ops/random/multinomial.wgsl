// Draws with replacement: each invocation finds, by bisection, where a uniform number falls among a
// row's running sums.
//
// @operand out: out {i64}
// @operand weight: in {f32}
// @operand sum: in {f32}

struct Params {
  count: u32,   // draws of all rows
  draws: u32,   // of one row
  weights: u32, // of one row
  philox: vec4<u32>, // key, counter
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let i = (group.y * groups.x + group.x) * 256u + local;
  if (i >= p.count) {
    return;
  }
  let row = i / p.draws * p.weights;
  let total = load_sum(p.sum_at + row + p.weights - 1u);
  let target_sum = uniform_f(philox_at(p.philox.xy, i, p.philox.zw).x) * total;
  var low = 0u;
  var high = p.weights - 1u;
  while (low < high) {
    let probe = low + (high - low) / 2u;
    if (load_sum(p.sum_at + row + probe) > target_sum) {
      high = probe;
    } else {
      low = probe + 1u;
    }
  }
  // Because of rounding in the parallel scan, neighbouring sums may differ where a weight is 0.
  // Such an element must not be drawn, so a neighbour is taken.
  let found = low;
  while (low < p.weights - 1u && load_weight(p.weight_at + row + low) <= 0.0) {
    low++;
  }
  if (load_weight(p.weight_at + row + low) <= 0.0) {
    low = found;
    while (low > 0u && load_weight(p.weight_at + row + low) <= 0.0) {
      low--;
    }
  }
  store_out(p.out_at + i, vec2<u32>(low, 0u));
}
