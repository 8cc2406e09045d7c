// LU factors of a panel of at most `block` columns with partial pivoting, in place. One workgroup
// per matrix. Rows are interchanged within the panel only.
//
// @operand a: out {f32, c64} // read too
// @operand pivots: out {i32}
// @operand info: out {i32} // read too
// @const   block: u32 in {16, 32}

import package::linalg::factor::batch::{main};
import package::linalg::matrix::{matrix_begin, element, lanes_with_rows};
import package::linalg::number::{num, times, over, real_part, imaginary_part, is_zero};

struct Params {
  batches: u32,
  rows: u32,
  columns: u32,
  first: u32, // the row and column that the panel starts at in the whole matrix
  pivots_batch: u32, // between the pivots of neighbouring matrices
  pivot: u32, // whether to interchange rows
  a_strides: vec4<u32>, // of batch, row and column
}

const lanes = 256u;

var<workgroup> best_size: array<u32, lanes>;
var<workgroup> best_row: array<u32, lanes>;
var<workgroup> pivot_row: array<num, block>;

// The size |re| + |im| by which LAPACK compares numbers, as bits. Compared as unsigned integers, the bits have the
// order of the sizes, with NaN last.
fn size_of(a: num) -> u32 {
  return bitcast<u32>(abs_f(real_part(a)) + abs_f(imaginary_part(a)));
}

fn decompose(batch: u32, lane: u32) {
  let a = matrix_begin(p.a_at, p.a_strides, batch);
  let width = lanes_with_rows(lanes, p.rows);
  var failed = 0u; // the first column, counted from 1, without a pivot
  for (var j = 0u; j < p.columns && j < p.rows; j++) {
    var size = 0u;
    var row = j;
    if (p.pivot != 0u) {
      for (var i = j + lane; i < p.rows; i += lanes) {
        let s = size_of(load_a(element(a, p.a_strides, i, j)));
        if (s > size) {
          size = s;
          row = i;
        }
      }
    }
    best_size[lane] = size;
    best_row[lane] = row;
    for (var half = width / 2u; half > 0u; half /= 2u) {
      workgroupBarrier();
      if (lane < half) {
        let other_size = best_size[lane + half];
        let other_row = best_row[lane + half];
        // Of equal sizes the first row is taken, as in LAPACK.
        if (other_size > size || (other_size == size && other_row < row)) {
          size = other_size;
          row = other_row;
          best_size[lane] = size;
          best_row[lane] = row;
        }
      }
    }
    workgroupBarrier();
    let pivot = best_row[0];
    if (lane < p.columns) {
      let here = element(a, p.a_strides, j, lane);
      let there = element(a, p.a_strides, pivot, lane);
      let value = load_a(there);
      store_a(there, load_a(here));
      store_a(here, value);
      pivot_row[lane] = value;
    }
    if (lane == 0u) {
      store_pivots(p.pivots_at + batch * p.pivots_batch + j, i32(p.first + pivot + 1u));
    }
    workgroupBarrier();
    storageBarrier();
    let divisor = pivot_row[j];
    if (is_zero(divisor)) {
      failed = select(failed, j + 1u, failed == 0u);
    } else {
      for (var i = j + 1u + lane; i < p.rows; i += lanes) {
        let factor = over(load_a(element(a, p.a_strides, i, j)), divisor);
        store_a(element(a, p.a_strides, i, j), factor);
        for (var k = j + 1u; k < p.columns; k++) {
          let at = element(a, p.a_strides, i, k);
          store_a(at, load_a(at) - times(factor, pivot_row[k]));
        }
      }
    }
    workgroupBarrier();
    storageBarrier();
  }
  let info = p.info_at + batch;
  if (lane == 0u && failed != 0u && load_info(info) == 0i) {
    store_info(info, i32(p.first + failed));
  }
}
