// The triangular factor T of a block of Householder reflectors: their product is I - V T V^H. On
// entry `t` holds the products V^H V; T replaces them. One workgroup per block, one invocation per row.
//
// @operand t: out {f32, c64} // read too
// @operand tau: in like t
// @const   block: u32 in {16, 32}

import package::linalg::matrix::{workgroup_number, matrix_begin, element};
import package::linalg::number::{num, times};

struct Params {
  batches: u32,
  count: u32, // reflectors
  tau_batch: u32, // between those of neighbouring matrices
  t_strides: vec4<u32>, // of batch, row and column
}


var<workgroup> factor: array<num, block * block>; // column after column

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) row: u32) {
  let batch = workgroup_number(wid, groups);
  if (batch >= p.batches) {
    return;
  }
  let t = matrix_begin(p.t_at, p.t_strides, batch);
  // A row of T depends on the products and on no other row.
  for (var j = row; j < p.count; j++) {
    let tau = load_tau(p.tau_at + batch * p.tau_batch + j);
    var value = tau;
    if (j > row) {
      var sum = num();
      for (var k = row; k < j; k++) {
        sum += times(factor[k * block + row], load_t(element(t, p.t_strides, k, j)));
      }
      value = -times(tau, sum);
    }
    factor[j * block + row] = value;
  }
  workgroupBarrier();
  storageBarrier(); // every row has read the products
  if (row < p.count) {
    for (var j = 0u; j < p.count; j++) {
      if (j < row) {
        store_t(element(t, p.t_strides, row, j), num());
      } else {
        store_t(element(t, p.t_strides, row, j), factor[j * block + row]);
      }
    }
  }
}
