// The second half of a product whose K was cut into pieces: adds the pieces' sums, which lie in `a` as
// [piece][batch][m][n], and finishes as gemm.wgsl would. `by_lanes`: 16 invocations share an element, each adds up every 16th
// piece.
//
// @operand c: out number akin a
// @operand a: in {f32, i32, i64, c64}
// @operand d: in number akin a optional
// @const   by_lanes: bool
// @grid groups ceil_div(p.m * p.n * p.batch, 256 - 240 * by_lanes)

import package::matmul::product::{Params, acc_t, acc_add, epilogue};

@if(by_lanes) const elements = 16u;
@else const elements = 256u; // of a workgroup

@if(by_lanes) const lanes = 16u;
@else const lanes = 1u;

@if(by_lanes) var<workgroup> sums: array<acc_t, elements * lanes>;

// The sum over all lanes of an element, for the first of them.
fn over_lanes(part: acc_t, t: u32) -> acc_t {
  @if(by_lanes) {
    sums[t] = part;
    workgroupBarrier();
    var sum = part;
    if (t < elements) {
      for (var i = t + elements; i < elements * lanes; i += elements) {
        sum = acc_add(sum, sums[i]);
      }
    }
    return sum;
  }
  @else return part;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (wid.y * groups.x + wid.x) * elements + t % elements;
  let piece = p.batch * p.m * p.n;
  var part = acc_t();
  if (i < piece) {
    for (var s = t / elements; s < p.splits; s += lanes) {
      part = acc_add(part, load_a(p.a_at + s * piece + i));
    }
  }
  let sum = over_lanes(part, t);
  if (t >= elements || i >= piece) {
    return;
  }
  let n = i % p.n;
  let m = i / p.n % p.m;
  let batch = i / p.n / p.m;
  store_c(p.c_at + batch * p.c_batch + m * p.c_row + n * p.c_column, epilogue(sum, batch, m, n));
}
