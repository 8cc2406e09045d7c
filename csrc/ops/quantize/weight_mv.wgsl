// out = a @ dequantized(w)^T for few rows of `a`: each load of a weight serves four of them. 32
// invocations share a row of w, and a workgroup handles eight rows of w.
//
// @operand out: out float
// @operand a: in like out
// @operand w: in {i8, bits32} // n rows of k weights; bits32: rows of whole words
// @operand scale: in float
// @const   packing: {int8, int4} // a scale a row; a scale and a zero point a group, in words of eight weights

import package::quantize::weights::{Params, weights, finish};

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
        let at = p.a_at + (m_first + c) * p.a_row + k;
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
      store_out(p.out_at + (m_first + c) * p.n + n, finish(sums[local][c], n));
    }
  }
}
