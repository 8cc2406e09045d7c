// conv_product.wgsl for floating point numbers, with the loop of gemm_registers.wgsl. B is gathered in groups of four
// channels, and A is a plain matrix.
//
// @operand c: words {f32, f16, bf16, bits128}
// @operand a: in {bits128, bits64}
// @operand b: in like a

import package::matmul::blocks::{StepPlace, step_place};
import package::matmul::grouped::{last_group, load4_a, load4_b, store_groups};
import package::matmul::gemm_registers::{large_product, k_of_group, row_of_group, tile_columns};
import package::matmul::product::{Params, acc_t, acc_scalar, fuse, BandedTile, banded_place};
import package::matmul::product::{store_second, store4_second};
@if(!phased) import package::matmul::product::{banded_tile};
import package::conv::conv_places::{Params, Gathered, divide_by, digits_of, two_levels, position, b_at, is_inside};
import package::conv::conv_groups::{Params, row_of_groups, column_of_groups, column_of_weight, place_in_groups, missing};
import package::conv::conv_groups::{place_in_image, tile_in_phase};
// @require !d_in_c
// @require !blocked
// @require !whole || !(phased || rolled)

alias b_place_t = Gathered;

alias b_step_t = Gathered;

fn column_of_b(batch: u32, n: u32) -> Gathered {
  return column_of_groups(p.b_at * 4u + batch * p.b_batch, n);
}

fn b_place(batch: u32, n0: u32, t: u32) -> b_place_t {
  return column_of_b(batch, n0 + select(t % (tile_columns / 4u) * 4u, t >> 1u, b_along_k));
}

fn b_step(step: StepPlace, t: u32) -> b_step_t {
  let k = step.k + k_of_group(t, b_along_k, tile_columns);
  return row_of_groups(k, k < step.end);
}

fn load_group_b(place: b_place_t, step: b_step_t, t: u32) -> vec4<f32> {
  let i = place_in_groups(step, place);
  if (i != missing) {
    return load4_b(i >> 2u);
  }
  return vec4<f32>();
}

// As gemm_registers.wgsl does, but for the place of a column: in elements, and without that of the column.
fn a_place(batch: u32, m0: u32, t: u32) -> u32 {
  return p.a_at * 4u + batch * p.a_batch + row_of_group(m0, p.m, a_along_k, t, tile_rows) * p.a_row;
}

fn load_group_a(place: u32, step: StepPlace, t: u32) -> vec4<f32> {
  let k = step.k + k_of_group(t, a_along_k, tile_rows);
  if (whole || k < step.end) {
    return load4_a((place + column_of_weight(k)) >> 2u);
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
      let j = row_of_a + column_of_weight(k);
      sum = fma(load4_a(j >> 2u)[j % 4u], load4_b(i >> 2u)[i % 4u], sum);
    }
  }
  return sum;
}

@if(phased)
fn banded_tile(id: u32, sides: vec2<u32>) -> BandedTile {
  return tile_in_phase(id, sides);
}

fn column_of_c(n: u32) -> u32 {
  return place_in_image(n, p.c_outer, p.c_column);
}

fn column_of_further(n: u32, strides: vec4<u32>) -> u32 {
  return place_in_image(n, strides.w, strides.z);
}

@compute @workgroup_size(2 * tile_rows)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  large_product(wid.y * groups.x + wid.x, t);
}
