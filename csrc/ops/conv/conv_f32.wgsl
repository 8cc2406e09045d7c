// conv_product.wgsl for float32, with the loop of gemm_f32.wgsl. B is gathered in groups of four channels, and A is a plain
// matrix.
//
// @operand c: out {bits128, f32}
// @operand a: in {bits128}
// @operand b: in {bits128}

import package::matmul::blocks::{StepPlace, step_place};
import package::matmul::gemm_f32::{large_product};
import package::matmul::grouped::{load4_a, outer_add, store_groups};
import package::matmul::product::{Params, acc_t, acc_scalar, fuse, BandedTile, banded_tile};
import package::conv::conv_places::{Params, Gathered, row_of_groups, column_of_groups, place_in_groups, missing};
import package::conv::conv_places::{place_of_c, place_of_further};
// @require !d_in_c
// @require !blocked

alias b_place_t = Gathered;

alias b_step_t = Gathered;

fn column_of_b(batch: u32, n: u32) -> Gathered {
  return column_of_groups(p.b_at * 4u + batch * p.b_batch, n);
}

fn b_place(batch: u32, n0: u32, t: u32) -> b_place_t {
  return column_of_b(batch, n0 + select((t & 31u) * 4u, t >> 1u, b_along_k));
}

fn b_step(step: StepPlace, t: u32) -> b_step_t {
  let k = step.k + select(t >> 5u, (t & 1u) * 4u, b_along_k);
  return row_of_groups(k, k < step.end);
}

fn load_group_b(place: b_place_t, step: b_step_t, n0: u32, t: u32) -> vec4<f32> {
  let i = place_in_groups(step, place);
  if (i != missing) {
    return bitcast<vec4<f32>>(load_b(i >> 2u));
  }
  return vec4<f32>();
}

fn is_nan4(v: vec4<f32>) -> bool {
  return any((bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u));
}

// Where NaN and infinity in A met an element of B that is missing, the sum is NaN: it is added up again.
fn without_missing(sums: mat4x4<f32>, here: BandedTile, m: u32, n: u32) -> mat4x4<f32> {
  if (!(is_nan4(sums[0]) || is_nan4(sums[1]) || is_nan4(sums[2]) || is_nan4(sums[3]))) {
    return sums;
  }
  var exact = sums;
  for (var e = 0u; e < 16u; e++) {
    if (m + e / 4u < p.m && n + e % 4u < p.n) {
      exact[e / 4u][e % 4u] = sum_without_missing(here, m + e / 4u, n + e % 4u);
    }
  }
  return exact;
}

fn sum_without_missing(here: BandedTile, m: u32, n: u32) -> f32 {
  let row_of_a = p.a_at * 4u + here.batch * p.a_batch + m * p.a_row;
  let column = column_of_b(here.batch, n);
  var sum = 0.0;
  for (var k = here.k_begin; k < here.k_end && !is_nan_f(sum); k++) {
    let i = place_in_groups(row_of_groups(k, true), column);
    if (i != missing) {
      let j = row_of_a + k * p.a_column;
      sum = fma(bitcast<f32>(load_a(j >> 2u)[j % 4u]), bitcast<f32>(load_b(i >> 2u)[i % 4u]), sum);
    }
  }
  return sum;
}

fn column_of_c(n: u32) -> u32 {
  return place_of_c(n);
}

fn column_of_further(n: u32, strides: vec4<u32>) -> u32 {
  return place_of_further(n, strides);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  large_product(wid.y * groups.x + wid.x, t);
}
