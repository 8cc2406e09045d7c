// Products of float32 matrices as those of float16 numbers, for torch.set_float32_matmul_precision("high"): with the loop of
// gemm_matrix.wgsl over what gemm_scale.wgsl made of them. A number keeps 11 bits, as many as TF32 has, down to 2^-28 of the
// largest magnitude in its row of A, or column of B. Below that it is off by 2^-38 of the largest. Sums are float32. Where
// there are infinities or NaN, sums are NaN and added up again from the float32 numbers.
//
// @enable  f16 subgroups chromium_experimental_subgroup_matrix
// @operand c: words {f32, bits128}
// @operand a: in {bits128} // scaled, in float16
// @operand b: in {bits128}
// @operand scales: in {f32} // of A's rows in all batches, then of B's columns
// @operand left: in {f32} // the matrices themselves
// @operand right: in {f32}
// @operand d: in {f32} optional

import package::matmul::blocks::{StepPlace, step_place};
import package::matmul::joined::{find_batches, batch_of_column, column_in_batch, in_batch};
import package::matmul::gemm_store::{store_group, store_single};
import package::matmul::gemm_matrix::{matrix_product};
import package::matmul::gemm_groups::{step_k, place_in_tile, line_of_group, load_group_a, load_group_b, base_of_a, base_of_b};
import package::matmul::gemm_groups::{place_of_group_a, place_of_group_b};
import package::matmul::product::{Params, acc_t, epilogue, epilogue4, BandedTile, banded_tile, column_of_c};
// @require !joined && !blocked && whole && !ragged && a_along_k && b_along_k && !c_along_m && !owns_c

struct Params {
  left_batch: u32, // strides, and the columns of the matrix itself
  left_row: u32,
  left_column: u32,
  right_batch: u32,
  right_row: u32,
  right_column: u32,
  depth: u32,
  right_scales: u32, // where B's start
}

fn scale_of(i: u32) -> f32 {
  return load_scales(p.scales_at + i);
}

// The smaller scale first, so that only what overflows in the end does so: a sum is below K * 2^30.
fn in_units_of_c(sums: vec4<f32>, here: BandedTile, m: u32, n: u32) -> vec4<f32> {
  let row = vec4<f32>(scale_of(select(0u, here.batch * p.m, p.a_batch != 0u) + m));
  let first = p.right_scales + select(0u, here.batch * p.n, p.b_batch != 0u);
  let last = p.n - 1u;
  let columns = vec4<f32>(scale_of(first + n), scale_of(first + min(n + 1u, last)),
                          scale_of(first + min(n + 2u, last)), scale_of(first + min(n + 3u, last)));
  return sums * min(row, columns) * max(row, columns);
}

fn without_missing(sum: f32, here: BandedTile, m: u32, n: u32) -> f32 {
  if (!is_nan_f(sum) || m >= p.m || n >= p.n) {
    return sum;
  }
  let row = p.left_at + here.batch * p.left_batch + m * p.left_row;
  let column = p.right_at + here.batch * p.right_batch + n * p.right_column;
  var exact = 0.0;
  for (var k = here.k_begin; k < min(here.k_end, p.depth) && !is_nan_f(exact); k++) {
    exact = fma(load_left(row + k * p.left_column), load_right(column + k * p.right_row), exact);
  }
  return exact;
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32, @builtin(subgroup_id) subgroup: u32) {
  matrix_product(wid.y * groups.x + wid.x, t, subgroup);
}
