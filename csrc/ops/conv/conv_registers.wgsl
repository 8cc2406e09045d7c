// conv_product.wgsl for floating point numbers, with the loop of gemm_registers.wgsl. B is gathered in groups of four
// channels, and A is a plain matrix.
//
// @operand c: words {f32, f16, bf16, bits128}
// @operand a: in {bits128, bits64}
// @operand b: in like a

import package::matmul::blocks::{StepPlace};
import package::matmul::joined::{find_batches, column_in_batch, in_batch};
import package::matmul::grouped::{last_group, load4_a, load4_b, store_groups, first_of_group};
import package::matmul::gemm_registers::{large_product, step_k, Step, k_of_group, row_of_group, tile_columns};
@if(!whole_taps) import package::matmul::blocks::{step_place};
@if(!whole_taps) import package::matmul::gemm_registers::{first_step, next_step};
import package::matmul::product::{Params, acc_t, acc_scalar, fuse, BandedTile, banded_place};
import package::matmul::product::{store_second, store4_second};
@if(!phased) import package::matmul::product::{banded_tile};
import package::conv::conv_places::{Params, Gathered, digits_of, two_levels, position, b_at, is_inside};
import package::conv::conv_groups::{Params, row_of_groups, column_of_groups, column_of_weight, place_in_groups, missing};
import package::conv::conv_groups::{place_in_image, tile_in_phase};
import package::conv::conv_columns::{find_columns, found_column};
import package::conv::conv_steps::{Reach, TapStep, reach_of, tap_step, tap_step_after, place_in_step, weights_of_step};
// @require !d_in_c
// @require !blocked && !joined
// @require !(whole && phased && !whole_taps) // in a phase A's columns follow each other within a tap only
// @require !(whole && rolled)

// Where elements of C are stored one by one, neighbouring invocations store neighbours of a row.
@if(c_is_f32 && b_along_k && !c_along_m) const columns_apart = 16u;
@else const columns_apart = 1u;

@if(whole_taps) alias b_place_t = Reach;
@else alias b_place_t = Gathered;

@if(whole_taps) alias b_step_t = TapStep;
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
  return column_of_groups(p.b_at * 4u + batch * p.b_batch, n);
}

// The column of the tile that group t of B lies in, or its first one.
fn column_of_group(t: u32) -> u32 {
  @if(b_along_k) return first_of_group(t >> 3u) + (t >> 1u) % 4u * columns_apart;
  @else return t % (tile_columns / 4u) * 4u;
}

fn b_place(batch: u32, n0: u32, t: u32) -> b_place_t {
  let column = column_of_b(batch, n0 + column_of_group(t));
  @if(whole_taps) return reach_of(column);
  @else return column;
}

@if(!whole_taps)
fn b_step(step: StepPlace, t: u32) -> b_step_t {
  let k = step.k + k_of_group(t, b_along_k, tile_columns);
  return row_of_groups(k, k < step.end);
}

// All groups of a step lie in its tap.
@if(whole_taps)
fn step_of_tap(tap: TapStep, k: u32, end: u32) -> Step {
  return Step(StepPlace(k, end, weights_of_step(tap, k), 0u), tap, tap);
}

@if(whole_taps)
fn first_step(k: u32, end: u32, t: u32) -> Step {
  return step_of_tap(tap_step(k), k, end);
}

@if(whole_taps)
fn next_step(before: Step, k: u32, end: u32, t: u32) -> Step {
  return step_of_tap(tap_step_after(before.b), k, end);
}

fn load_group_b(place: b_place_t, step: b_step_t, t: u32) -> vec4<f32> {
  @if(whole_taps) let i = place_in_step(place, step, k_of_group(t, b_along_k, tile_columns));
  @else let i = place_in_groups(step, place);
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
    @if(whole_taps) return load4_a((place + step.a + k * p.a_column) >> 2u);
    @else return load4_a((place + column_of_weight(k)) >> 2u);
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
    let column = n + e % 4u * columns_apart;
    if (m + e / 4u < p.m && column < p.n) {
      exact[e / 4u][e % 4u] = sum_without_missing(here, m + e / 4u, column);
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

@compute @workgroup_size(2 * tile_rows)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  large_product(wid.y * groups.x + wid.x, t);
}
