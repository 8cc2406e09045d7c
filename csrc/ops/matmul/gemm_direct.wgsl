// The product of gemm.wgsl without tiles: one invocation per element of C. For matrices with so few rows or columns
// that most of a tile would be unused, such as those of depthwise convolutions.
//
// @operand c: out number akin a
// @operand a: in number
// @operand b: in like a
// @operand d: in like a optional
// @grid invocations p.m * p.n * p.batch * p.splits

import package::matmul::product::{Params, acc_t, acc_add, acc_mul, epilogue};
import package::matmul::product::{column_of_a, row_of_b, column_of_b, b_element, b_exists, column_of_c};

// One element. They are numbered by columns first, then rows, batches and pieces of K.
fn direct_product(id: u32) {
  let n = id % p.n;
  let m = id / p.n % p.m;
  let c_batch = id / p.n / p.m; // piece * batches + batch
  let batch = c_batch % p.batch;
  let piece = c_batch / p.batch;
  if (piece >= p.splits) {
    return;
  }
  let k_end = min((piece + 1u) * p.k_piece, p.k);
  let a_row = p.a_at + batch * p.a_batch + m * p.a_row;
  let column = column_of_b(batch, n);
  var sum = acc_t();
  for (var k = piece * p.k_piece; k < k_end; k++) {
    let row = row_of_b(k);
    if (b_exists(row, column)) {
      sum = acc_add(sum, acc_mul(load_a(a_row + column_of_a(k)), b_element(row, column)));
    }
  }
  store_c(p.c_at + c_batch * p.c_batch + m * p.c_row + column_of_c(n), epilogue(sum, batch, m, n));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  direct_product((wid.y * groups.x + wid.x) * 64u + t);
}
