// Draws with replacement: each invocation finds, by bisection, where a uniform number falls among a
// row's running sums.

struct Params {
  count: u32,   // draws of all rows
  draws: u32,   // of one row
  weights: u32, // of one row
  out_offset: u32,
  weight_offset: u32,
  sum_offset: u32,
  seed: vec2<u32>,
  stream: vec2<u32>,
}
@group(0) @binding(31) var<uniform> p: Params;

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<vec2<u32>>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
@group(0) @binding(2) var<storage, read> b2: array<f32>;
fn store_out(i: u32, v: vec2<u32>) { b0[i] = v; }
fn load_weight(i: u32) -> f32 { return b1[i]; }
fn load_sum(i: u32) -> f32 { return b2[i]; }
// @end

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let i = (group.y * groups.x + group.x) * 256u + local;
  if (i >= p.count) {
    return;
  }
  let row = i / p.draws * p.weights;
  let total = load_sum(p.sum_offset + row + p.weights - 1u);
  let target_sum = uniform_f(philox_at(p.seed, i, p.stream).x) * total;
  var low = 0u;
  var high = p.weights - 1u;
  while (low < high) {
    let probe = low + (high - low) / 2u;
    if (load_sum(p.sum_offset + row + probe) > target_sum) {
      high = probe;
    } else {
      low = probe + 1u;
    }
  }
  // Sums of a parallel scan may differ by their rounding where a weight is 0, which must not be
  // drawn: take a neighbour.
  let found = low;
  while (low < p.weights - 1u && load_weight(p.weight_offset + row + low) <= 0.0) {
    low++;
  }
  if (load_weight(p.weight_offset + row + low) <= 0.0) {
    low = found;
    while (low > 0u && load_weight(p.weight_offset + row + low) <= 0.0) {
      low--;
    }
  }
  store_out(p.out_offset + i, vec2<u32>(low, 0u));
}
