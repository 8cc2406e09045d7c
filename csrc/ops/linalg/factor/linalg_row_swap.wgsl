// Applies LAPACK's row interchanges, one after the other or in reverse order. One invocation per
// column.
//
// @operand b: out {bits32, bits64} // read too
// @operand pivots: in {i32} // counted from 1

import package::linalg::matrix::{workgroup_number, matrix_begin, element};

struct Params {
  batches: u32,
  columns: u32,
  count: u32, // interchanges
  reverse: u32,
  pivots_batch: u32, // between the pivots of neighbouring matrices
  first: u32, // the row that the first pivot belongs to
  b_strides: vec4<u32>, // of batch, row and column
}


@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let id = workgroup_number(wid, groups) * 256u + lane;
  let batch = id / p.columns;
  if (batch >= p.batches) {
    return;
  }
  let b = element(matrix_begin(p.b_at, p.b_strides, batch), p.b_strides, 0u, id % p.columns);
  for (var step = 0u; step < p.count; step++) {
    let i = select(step, p.count - 1u - step, p.reverse != 0u);
    let pivot = u32(load_pivots(p.pivots_at + batch * p.pivots_batch + i)) - 1u;
    let here = b + (p.first + i) * p.b_strides.y;
    let there = b + pivot * p.b_strides.y;
    let value = load_b(there);
    store_b(there, load_b(here));
    store_b(here, value);
  }
}
