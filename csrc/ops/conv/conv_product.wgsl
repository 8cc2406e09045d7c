// A convolution or one of its gradients as a matrix product, one batch for each group. Each form computes one of
// input x, output y and weight w from the other two. B is the operand that is indexed by a tap and a position together;
// the kernel gathers its elements:
//   output: y = w @ x     A's columns and B's rows are taps, the columns of B and C positions of y in all images
//   input:  x = w @ y     the same with positions of x; also the output of a transposed convolution
//   weight: w = y @ x     A's columns and B's rows are positions of y, the columns of B and C taps
// Vectors are (depth, height, width).
//
// @operand c: words number akin a
// @const   direct: bool // an invocation for each element of C, as in gemm_direct.wgsl; else tiles, as in gemm.wgsl
// @grid groups ceil_div(p.tiles_m * p.tiles_n * p.batch * p.splits, 1 + 63 * direct)

import package::matmul::gemm::{tile_product};
@if(direct) import package::matmul::gemm_direct::{direct_product};
import package::matmul::product::{Params, acc_t, acc_add, acc_mul, epilogue, epilogue4};
import package::conv::conv_places::{Params, Gathered, b_at, is_inside, place_of_c, place_of_further};
import package::conv::conv_places::{gathered_row, gathered_column, gathered_element, place_in_a};
// @require !direct || tile == 8
// @require !direct || !owns_c

alias b_row_t = Gathered;

alias b_column_t = Gathered;

fn row_of_b(k: u32) -> b_row_t {
  return gathered_row(k);
}

fn column_of_b(batch: u32, n: u32) -> b_column_t {
  return gathered_column(p.b_at + batch * p.b_batch, n);
}

fn b_exists(row: b_row_t, column: b_column_t) -> bool {
  return is_inside(b_at(row, column));
}

fn b_element(row: b_row_t, column: b_column_t) -> b_t {
  return gathered_element(row, column);
}

fn column_of_a(k: u32) -> u32 {
  return place_in_a(k);
}

fn column_of_c(n: u32) -> u32 {
  return place_of_c(n);
}

fn column_of_further(n: u32, strides: vec4<u32>) -> u32 {
  return place_of_further(n, strides);
}

// Elements of B in the padding, and those between or beyond the elements of a strided y, are missing: see product.wgsl.
@if(a_is_float || a_is_complex) var<workgroup> not_finite: atomic<u32>;

fn forget_not_finite() {
  @if(a_is_float || a_is_complex) atomicStore(&not_finite, 0u);
}

fn note_not_finite(a: row_t) {
  @if(a_is_float) let finite = is_finite_row(a);
  @elif(a_is_complex) let finite = is_finite_row(a[0]) && is_finite_row(a[1]);
  @if(a_is_float || a_is_complex) {
    if (!finite) {
      atomicStore(&not_finite, 1u);
    }
  }
}

fn is_finite_row(row: vec4<f32>) -> bool {
  return all((bitcast<vec4<u32>>(row) & vec4<u32>(0x7f800000u)) != vec4<u32>(0x7f800000u));
}

fn found_not_finite() -> bool {
  @if(a_is_float || a_is_complex) return atomicLoad(&not_finite) != 0u;
  @else return false;
}

fn row_where(condition: vec4<bool>, yes: row_t, no: row_t) -> row_t {
  @if(a_is_float) return select(no, yes, condition);
  @elif(a_is_complex) return row_t(select(no[0], yes[0], condition), select(no[1], yes[1], condition));
  @else return yes;
}

@compute @workgroup_size(tile * tile)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  @if(direct) direct_product((wid.y * groups.x + wid.x) * 64u + t);
  @else tile_product(wid.y * groups.x + wid.x, t);
}
