// Solves A X = B for a triangular A of at most `block` rows, in place of B. One invocation per
// column of B. A is kept in workgroup memory.
//
// @operand b: out {f32, c64} // read too
// @operand a: in like b
// @const   block: u32 in {16, 32}

import package::linalg::matrix::{workgroup_number, matrix_begin, element};
import package::linalg::number::{num, times, over, conjugate};

struct Params {
  batches: u32,
  rows: u32,
  columns: u32,
  column_groups: u32, // workgroups per matrix
  upper: u32,
  unit: u32, // whether the diagonal is taken to be 1
  conjugate: u32,
  a_strides: vec4<u32>, // of batch, row and column
  b_strides: vec4<u32>,
}


const lanes = 64u;

var<workgroup> triangle: array<num, block * block>;
var<workgroup> solution: array<num, block * lanes>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let group = workgroup_number(wid, groups);
  let batch = group / p.column_groups;
  if (batch >= p.batches) {
    return;
  }
  let column = group % p.column_groups * lanes + lane;
  let a = matrix_begin(p.a_at, p.a_strides, batch);
  for (var e = lane; e < p.rows * p.rows; e += lanes) {
    let i = e % p.rows;
    let j = e / p.rows;
    let value = load_a(element(a, p.a_strides, i, j));
    if (p.conjugate != 0u) {
      triangle[i * block + j] = conjugate(value);
    } else {
      triangle[i * block + j] = value;
    }
  }
  workgroupBarrier();
  if (column >= p.columns) {
    return;
  }
  let b = element(matrix_begin(p.b_at, p.b_strides, batch), p.b_strides, 0u, column);
  for (var step = 0u; step < p.rows; step++) {
    let i = select(step, p.rows - 1u - step, p.upper != 0u);
    var value = load_b(b + i * p.b_strides.y);
    for (var k = 0u; k < step; k++) {
      let j = select(k, p.rows - 1u - k, p.upper != 0u);
      value -= times(triangle[i * block + j], solution[j * lanes + lane]);
    }
    if (p.unit == 0u) {
      value = over(value, triangle[i * block + i]);
    }
    solution[i * lanes + lane] = value;
    store_b(b + i * p.b_strides.y, value);
  }
}
