// Turns LAPACK's row interchanges into permutations: applies them to rows of 0, 1, 2, ... One
// invocation per matrix.
//
// @operand out: out {i64}
// @operand pivots: in {i32} // counted from 1

import package::linalg::matrix::{workgroup_number};

struct Params {
  batches: u32,
  count: u32, // interchanges
  pivots_batch: u32, // between the pivots of neighbouring matrices
  out_batch: u32,
}


@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let batch = workgroup_number(wid, groups) * 256u + lane;
  if (batch >= p.batches) {
    return;
  }
  let out = p.out_at + batch * p.out_batch;
  for (var i = 0u; i < p.count; i++) {
    let pivot = u32(load_pivots(p.pivots_at + batch * p.pivots_batch + i)) - 1u;
    let value = load_out(out + pivot);
    store_out(out + pivot, load_out(out + i));
    store_out(out + i, value);
  }
}
