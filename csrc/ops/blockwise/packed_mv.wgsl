// out = a @ unpacked(w)^T + bias for few rows of `a`. 32 invocations share a row of w, and a workgroup computes with
// eight rows of w and up to four of `a`. These are staged in workgroup memory as float32, because all rows of w need
// them, and the weights are read once.
//
// @operand out: out float
// @operand a: in like out
// @operand bias: in like out optional
// @const   rows: u32 in {1, 4} // of a

import package::blockwise::packed::{prepare, codes, scale_of};

struct Params {
  m: u32,
  n: u32,
  k: u32, // a multiple of 8
  block: u32, // weights that share a scale
  a_row: u32, // distance of the rows of a, even
  tiles_n: u32,
}

const kLanes = 32u;
const kRows = 8u; // of w
const kChunk = 1024u / rows; // columns that are staged at a time
const kEights = kChunk / 8u;

// Of each row first the first halves of eight columns, then the second ones, so that neighbours read neighbours.
var<workgroup> tile: array<vec4<f32>, rows * 2u * kEights>;
var<workgroup> sums: array<array<f32, rows>, kLanes * kRows>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let id = group.y * groups.x + group.x;
  let lane = local % kLanes;
  let n = id % p.tiles_n * kRows + local / kLanes;
  let m_first = id / p.tiles_n * rows;
  if (m_first >= p.m) {
    return; // all invocations of the group
  }
  prepare(local);
  var sum = array<f32, rows>();
  for (var start = 0u; start < p.k; start += kChunk) {
    let width = min(p.k - start, kChunk);
    workgroupBarrier();
    for (var q = local; q < rows * kChunk / 4u; q += kLanes * kRows) {
      let row = q / (kChunk / 4u);
      let quad = q % (kChunk / 4u);
      if (m_first + row < p.m && quad * 4u < width) {
        let at = p.a_at + (m_first + row) * p.a_row + start + quad * 4u;
        let low = load2_a(at);
        let high = load2_a(at + 2u);
        tile[(row * 2u + quad % 2u) * kEights + quad / 2u] = vec4<f32>(low, high);
      }
    }
    workgroupBarrier();
    if (n < p.n) {
      for (var eight = lane; eight * 8u < width; eight += kLanes) {
        let i = n * p.k + start + eight * 8u;
        let first = codes(i);
        let second = codes(i + 4u);
        let scale = scale_of(i);
        for (var r = 0u; r < rows; r++) {
          let x = tile[r * 2u * kEights + eight];
          let y = tile[(r * 2u + 1u) * kEights + eight];
          sum[r] = fma(scale.x, dot(first, x) + dot(second, y), sum[r]);
          @if(q4_k) sum[r] = fma(scale.y, dot(x + y, vec4<f32>(1.0)), sum[r]);
        }
      }
    }
  }
  sums[local] = sum;
  for (var half = kLanes / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane < half) {
      for (var r = 0u; r < rows; r++) {
        sums[local][r] += sums[local + half][r];
      }
    }
  }
  if (lane == 0u && n < p.n) {
    var addend = 0.0;
    @if(has_bias) addend = load_bias(p.bias_at + n);
    for (var r = 0u; r < rows && m_first + r < p.m; r++) {
      store_out(p.out_at + (m_first + r) * p.n + n, sums[local][r] + addend);
    }
  }
}
