// out = a @ dequantized(w)^T for many rows of `a`: weights of 4 or 8 bits are converted to float32
// before they are staged in workgroup memory. A workgroup computes 64 x 64 elements, 16 steps of K at
// a time; an invocation computes 4 x 4 of them.
//
// @operand out: out float
// @operand a: in like out
// @operand w: in {i8, bits32} // n rows of k weights; bits32: rows of whole words
// @operand scale: in float
// @const   packing: {int8, int4} // a scale a row; a scale and a zero point a group, in words of eight weights

import package::quantize::weights::{Params, prepare, weights, finish};

const kTile = 64u;
const kStep = 16u;
const kPitch = 65u; // against bank conflicts

var<workgroup> tile_a: array<f32, kStep * kPitch>; // [k][m]
var<workgroup> tile_w: array<f32, kStep * kPitch>; // [k][n]

// Four elements of row m, from column k on; zeros beyond the matrix.
fn elements(m: u32, k: u32) -> vec4<f32> {
  var result = vec4<f32>();
  for (var j = 0u; j < 4u; j++) {
    if (m < p.m && k + j < p.k) {
      result[j] = load_a(p.a_at + m * p.a_row + k + j);
    }
  }
  return result;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let id = group.y * groups.x + group.x;
  let m_first = id / p.tiles_n * kTile;
  let n_first = id % p.tiles_n * kTile;
  if (m_first >= p.m) {
    return; // all invocations of the group
  }
  prepare(local);
  let row = local / 4u;
  let column = local % 4u * 4u;
  let tm = local / 16u * 4u;
  let tn = local % 16u * 4u;
  var sums = array<vec4<f32>, 4>();
  for (var k = 0u; k < p.k; k += kStep) {
    let a = elements(m_first + row, k + column);
    var w = vec4<f32>();
    if (n_first + row < p.n && k + column < p.k) {
      w = weights(n_first + row, k + column);
    }
    workgroupBarrier();
    for (var j = 0u; j < 4u; j++) {
      tile_a[(column + j) * kPitch + row] = a[j];
      // Beyond the row's end `a` is zero, but a weight there may be NaN or infinite.
      tile_w[(column + j) * kPitch + row] = select(0.0, w[j], k + column + j < p.k);
    }
    workgroupBarrier();
    for (var step = 0u; step < kStep; step++) {
      let at_w = step * kPitch + tn;
      let w4 = vec4<f32>(tile_w[at_w], tile_w[at_w + 1u], tile_w[at_w + 2u], tile_w[at_w + 3u]);
      for (var j = 0u; j < 4u; j++) {
        sums[j] = fma(vec4<f32>(tile_a[step * kPitch + tm + j]), w4, sums[j]);
      }
    }
  }
  for (var i = 0u; i < 4u; i++) {
    for (var j = 0u; j < 4u; j++) {
      let m = m_first + tm + i;
      let n = n_first + tn + j;
      if (m < p.m && n < p.n) {
        store_out(p.out_at + m * p.n + n, finish(sums[i][j], n));
      }
    }
  }
}
