// conv_product.wgsl for float16 on subgroup matrices, with the loop of gemm_matrix.wgsl. B is gathered in groups of eight
// channels, and A is a plain matrix.
//
// @enable  f16 subgroups chromium_experimental_subgroup_matrix
// @operand c: words {f16, f32, bits128}
// @operand a: in {bits128}
// @operand b: in {bits128}

import package::matmul::blocks::{StepPlace};
@if(!(whole_taps && phased)) import package::matmul::blocks::{step_place};
import package::matmul::joined::{find_batches, batch_of_column, column_in_batch, in_batch};
import package::matmul::gemm_store::{store_group, store_single};
import package::matmul::gemm_matrix::{matrix_product, rows};
import package::matmul::gemm_groups::{step_k, place_in_tile, line_of_group, base_of_a, place_of_group_a};
import package::matmul::product::{Params, acc_t, epilogue, epilogue4, BandedTile, banded_place};
@if(!phased) import package::matmul::product::{banded_tile};
import package::conv::conv_places::{Params, Gathered, digits_of, two_levels, position, b_at, is_inside};
import package::conv::conv_groups::{Params, row_of_groups, column_of_groups, column_of_weight, place_in_groups, missing};
import package::conv::conv_groups::{place_in_image, tile_in_phase};
import package::conv::conv_columns::{find_columns, found_column};
import package::conv::conv_steps::{Reach, TapStep, reach_of, tap_step, tap_step_after, place_in_step};
// @require !blocked && !ragged && !joined
// @require !(whole && phased && !whole_taps) // in a phase A's columns follow each other within a tap only
// @require whole || !whole_taps

@if(whole_taps) alias b_place_t = Reach;
@else alias b_place_t = Gathered;

// In the weight's gradient rows of B are positions, which groups of one step do not share.
@if(weight) alias b_step_t = StepPlace;
@elif(whole_taps) alias b_step_t = TapStep;
@else alias b_step_t = Gathered;

fn start_tile(here: BandedTile, t: u32) {
  find_columns(here, t);
}

fn column_of_c(n: u32) -> u32 {
  return found_column(n);
}

fn column_of_further(n: u32, strides: vec4<u32>) -> u32 {
  return place_in_image(n, strides.w, strides.z);
}

fn column_of_b(batch: u32, n: u32) -> Gathered {
  return column_of_groups(p.b_at * 8u + batch * p.b_batch, n);
}

fn b_place(batch: u32, n0: u32, g: u32) -> b_place_t {
  let column = column_of_b(batch, n0 + place_in_tile(g, b_along_k, 16u).x);
  @if(whole_taps) return reach_of(column);
  @else return column;
}

fn b_step(step: StepPlace, t: u32) -> b_step_t {
  @if(weight) return step;
  @elif(whole_taps) return tap_step(step.k);
  @else {
    let k = step.k + t % 4u * 8u;
    return row_of_groups(k, k < step.end);
  }
}

fn b_step_after(before: b_step_t, step: StepPlace, t: u32) -> b_step_t {
  @if(whole_taps) return tap_step_after(before);
  @else return b_step(step, t);
}

fn load_step_b(place: b_place_t, step: b_step_t, n0: u32, g: u32) -> vec4<u32> {
  @if(weight) let k = step.k + place_in_tile(g, b_along_k, 16u).y;
  @if(weight) let row = row_of_groups(k, k < step.end);
  @else let row = step;
  @if(whole_taps) let i = place_in_step(place, row, g % 4u * 8u);
  @else let i = place_in_groups(row, place);
  if (i != missing) {
    return load_b(i >> 3u);
  }
  return vec4<u32>();
}

// As gemm_matrix.wgsl does, for which B is a matrix.
fn load_first_b(place: b_place_t, step: b_step_t, batch: u32, n0: u32, g: u32) -> vec4<u32> {
  return load_step_b(place, step, n0, g);
}

// The columns of A follow each other within a step, and in a product without phases from step to step.
@if(whole_taps && phased)
fn step_place(k: u32, k_end: u32) -> StepPlace {
  return StepPlace(k, k_end, column_of_weight(k) - k, 0u);
}

// As gemm_groups.wgsl does, but for the place of a column.
fn load_group_a(base: u32, m0: u32, k0: u32, k_end: u32, g: u32) -> vec4<u32> {
  let at = place_in_tile(g, a_along_k, rows / 8u) + vec2<u32>(m0, k0);
  if (at.x < p.m && at.y < k_end) {
    return load_a((base + at.x * p.a_row + column_of_weight(at.y)) >> 3u);
  }
  return vec4<u32>();
}

fn half_of(group: vec4<u32>, i: u32) -> f32 {
  return unpack2x16float(group[i / 2u % 4u])[i % 2u];
}

// Where NaN and infinity in A met an element of B that is missing, the sum is NaN: it is added up again.
fn without_missing(sum: f32, here: BandedTile, m: u32, n: u32) -> f32 {
  if (!is_nan_f(sum) || m >= p.m || n >= p.n) {
    return sum;
  }
  let row_of_a = p.a_at * 8u + here.batch * p.a_batch + m * p.a_row;
  let column = column_of_b(here.batch, n);
  var exact = 0.0;
  for (var k = here.k_begin; k < here.k_end && !is_nan_f(exact); k++) {
    let i = place_in_groups(row_of_groups(k, true), column);
    if (i != missing) {
      let j = row_of_a + column_of_weight(k);
      exact = fma(half_of(load_a(j >> 3u), j), half_of(load_b(i >> 3u), i), exact);
    }
  }
  return exact;
}

@if(phased)
fn banded_tile(id: u32, sides: vec2<u32>) -> BandedTile {
  return tile_in_phase(id, sides);
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32, @builtin(subgroup_id) subgroup: u32) {
  matrix_product(wid.y * groups.x + wid.x, t, subgroup);
}
