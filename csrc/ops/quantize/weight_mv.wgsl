// out = a @ dequantized(w)^T for few rows of `a`: a weight is read once for four of them. 32
// invocations add up a row of w, and a workgroup has eight rows.

@group(0) @binding(31) var<uniform> p: WeightParams;

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
@group(0) @binding(2) var<storage, read> b2: array<u32>;
@group(0) @binding(3) var<storage, read> b3: array<f32>;
fn store_out(i: u32, v: f32) { b0[i] = v; }
fn load_a(i: u32) -> f32 { return b1[i]; }
fn load_w(i: u32) -> u32 { return b2[i]; }
fn load_scale(i: u32) -> f32 { return b3[i]; }
// @end

// Four weights of row n, from column k on, a multiple of 4; those beyond the row are not used.
// @hook weights
fn weights(n: u32, k: u32) -> vec4<f32> {
  return vec4<f32>(f32(load_w(p.w_offset + n * p.k + k))) * load_scale(p.scale_offset + n);
}
// @end

// What is left to do with a sum of row n.
// @hook finish
fn finish(sum: f32, n: u32) -> f32 { return sum; }
// @end

const kLanes = 32u;
const kRows = 8u; // of w
const kColumns = 4u; // rows of a

var<workgroup> sums: array<vec4<f32>, kLanes * kRows>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let id = group.y * groups.x + group.x;
  let lane = local % kLanes;
  let n = id % p.tiles_n * kRows + local / kLanes;
  let m_first = id / p.tiles_n * kColumns;
  var sum = vec4<f32>();
  if (n < p.n && m_first < p.m) {
    for (var k = lane * 4u; k < p.k; k += kLanes * 4u) {
      let w = weights(n, k);
      let last = min(p.k - k, 4u);
      for (var c = 0u; c < min(p.m - m_first, kColumns); c++) {
        let at = p.a_offset + (m_first + c) * p.a_row + k;
        for (var j = 0u; j < last; j++) {
          sum[c] = fma(load_a(at + j), w[j], sum[c]);
        }
      }
    }
  }
  sums[local] = sum;
  for (var half = kLanes / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane < half) {
      sums[local] += sums[local + half];
    }
  }
  if (lane == 0u && n < p.n) {
    for (var c = 0u; c < kColumns && m_first + c < p.m; c++) {
      store_out(p.out_offset + (m_first + c) * p.n + n, finish(sums[local][c], n));
    }
  }
}
