// The Cholesky factor of a Hermitian matrix of at most `block` rows, in place of its lower
// triangle. One workgroup per matrix.
//
// @operand a: out {f32, c64} // read too
// @operand info: out {i32} // read too
// @const   block: u32 in {16, 32}

import package::linalg::factor::batch::{main};
import package::linalg::matrix::{matrix_begin, element};
import package::linalg::number::{num, times, over, conjugate, real_part, from_real};

struct Params {
  batches: u32,
  rows: u32,
  first: u32, // the row that this block starts at in the whole matrix
  a_strides: vec4<u32>, // of batch, row and column
}

var<workgroup> tile: array<num, block * block>; // column after column

fn decompose(batch: u32, lane: u32) {
  let a = matrix_begin(p.a_at, p.a_strides, batch);
  for (var e = lane; e < block * block; e += 256u) {
    let i = e % block;
    let j = e / block;
    if (j <= i && i < p.rows) {
      tile[e] = load_a(element(a, p.a_strides, i, j));
    }
  }
  var failed = 0u; // the first row, counted from 1, whose leading minor is not positive
  for (var j = 0u; j < p.rows; j++) {
    workgroupBarrier();
    let square = real_part(tile[j * block + j]);
    if (failed == 0u && (is_nan_f(square) || square <= 0.0)) {
      failed = j + 1u;
    }
    let root = from_real(sqrt_f(square));
    workgroupBarrier();
    if (lane == j) {
      tile[j * block + j] = root;
    } else if (lane > j && lane < p.rows) {
      tile[j * block + lane] = over(tile[j * block + lane], root);
    }
    workgroupBarrier();
    for (var e = lane; e < block * block; e += 256u) {
      let i = e % block;
      let k = e / block;
      if (k > j && k <= i && i < p.rows) {
        tile[e] -= times(tile[j * block + i], conjugate(tile[j * block + k]));
      }
    }
  }
  workgroupBarrier();
  for (var e = lane; e < block * block; e += 256u) {
    let i = e % block;
    let j = e / block;
    if (j <= i && i < p.rows) {
      store_a(element(a, p.a_strides, i, j), tile[e]);
    }
  }
  let info = p.info_at + batch;
  if (lane == 0u && failed != 0u && load_info(info) == 0i) {
    store_info(info, i32(p.first + failed));
  }
}
