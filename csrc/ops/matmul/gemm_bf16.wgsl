// gemm.wgsl for bfloat16 on subgroup matrices, with the tiles of gemm_matrix.wgsl. Numbers are staged as float16 ones, with the
// exact products, and K is passed as often as the magnitudes ask for: gemm_windows.wgsl says how. Where there are copies by
// gemm_halves.wgsl, which hold what lies in windows 0, these are multiplied in a loop of their own, behind the other passes.
//
// @enable  f16 subgroups chromium_experimental_subgroup_matrix
// @operand c: words {bf16, f32, bits128} // bits128: of float32, where groups of four are aligned and end at the edge
// @operand a: in {bits128, bits16} // bits128: groups of eight are aligned; behind the edges they are zero
// @operand b: in {bits128, bits16}
// @operand ranges: in of u32 // of gemm_ranges.wgsl
// @operand a_halves: in {bits128} optional // of gemm_halves.wgsl
// @operand b_halves: in {bits128} optional
// @operand d: in {bf16} optional
// @operand e: in float optional
// @operand f: in float optional
// @operand g: in float optional
// @operand h: in float optional
// @operand i: in float optional
// @const   blocked: bool

import package::matmul::joined::{column_in_batch, in_batch};
import package::matmul::gemm_store::{store_group, store_single, without_missing};
import package::matmul::product::{Params, acc_t, epilogue, epilogue4, BandedTile, banded_tile, column_of_c};
import package::matmul::gemm_groups::{step_k, place_in_tile, line_of_group, load_group_a, load_group_b, base_of_a, base_of_b};
import package::matmul::gemm_matrix::{Left, Right, Sum, tile, rows, left, right, stage_a, stage_b, place_of_a, place_of_b};
import package::matmul::gemm_matrix::{store_rows};
@if(has_a_halves) import package::matmul::gemm_matrix::{first_step, step_after};
import package::matmul::gemm_windows::{find_windows, find_step, top_in_a, top_in_b, is_windowed};
import package::matmul::gemm_windows::{scaled_group, windowed_group, converted_a, converted_b};
import package::matmul::gemm_windows::{Step, level_down, unit_of};
import package::matmul::gemm_blocks::{block_k};
// @require tall && !joined && !c_along_m && !blocked
// @require has_a_halves == has_b_halves
// @require has_a_halves || !whole

// Converts what this invocation staged as bfloat16, where no faster function does it.
fn convert_staged(step: Step, t: u32) {
  let a_end = select(512u, 0u, step.a_factor != 0.0 || is_windowed(step, top_in_a(step)));
  for (var g = t; g < a_end; g += 128u) {
    stage_a(g, converted_a(tile[place_of_a(g)], step));
  }
  let b_end = select(512u, 0u, step.b_factor != 0.0 || is_windowed(step, top_in_b(step)));
  for (var g = t; g < b_end; g += 128u) {
    stage_b(g, converted_b(tile[place_of_b(g)], step));
  }
}

// ---- The copies, whose groups of eight run across K. They are staged so, whatever order A and B have.

// Where an invocation's groups of a step lie: four, eight rows of K apart. Beyond the edge they are the last ones of the copy:
// what is computed from them is not stored.
struct Halves {
  first: u32, // of the step at K = 0
  pitch: u32, // of a row of K
  k_end: u32, // of the workgroup's piece of K
}

@if(has_a_halves)
fn halves_at(start: u32, batch: u32, across: u32, size: u32, k_end: u32, t: u32) -> Halves {
  let pitch = (size + 7u) / 8u;
  let at = place_in_tile(t, false, 16u) + vec2<u32>(across, 0u);
  return Halves(start + (batch * p.k + at.y) * pitch + min(at.x / 8u, pitch - 1u), pitch, k_end);
}

// Whether group j of the step at k exists. If `ragged`, only the step that is staged first may end behind K.
@if(has_a_halves)
fn half_exists(at: Halves, k: u32, t: u32, j: u32, is_first: bool) -> bool {
  @if(ragged) return !is_first || k + j * 8u + t / 16u < at.k_end;
  @elif(whole) return true;
  @else return k + j * 8u + t / 16u < at.k_end;
}

@repeat(x, {a, b}) @if(has_a_halves)
fn half_of_$x(at: Halves, k: u32, t: u32, j: u32, is_first: bool) -> vec4<u32> {
  if (half_exists(at, k, t, j, is_first)) {
    return load_${x}_halves(at.first + (k + j * 8u) * at.pitch);
  }
  return vec4<u32>();
}

const across_pitch = 17u; // in groups

const across_b = step_k * across_pitch; // where B starts

@if(has_a_halves)
fn place_across(start: u32, g: u32) -> u32 {
  return start + g / 16u * across_pitch + g % 16u;
}

@if(has_a_halves)
fn left_across(m: u32, k: u32) -> Left {
  return subgroupMatrixLoad<Left, col_major>(&tile, k * across_pitch + m / 8u, across_pitch);
}

@if(has_a_halves)
fn right_across(k: u32, n: u32) -> Right {
  return subgroupMatrixLoad<Right, row_major>(&tile, across_b + k * across_pitch + n / 8u, across_pitch);
}

// The unit of the sums, in two factors.
var<private> unit: vec2<f32>;

fn in_units_of_c(sums: vec4<f32>, here: BandedTile, m: u32, n: u32) -> vec4<f32> {
  return sums * unit.x * unit.y;
}

// Whether only the pass over windows 0 is left, which the copies hold.
@if(has_a_halves)
fn is_last_pass(step: Step) -> bool {
  return step.level == 0 && step.special == 0u;
}

// The tile of a workgroup.
fn bf16_product(workgroup: u32, t: u32, subgroup: u32) {
  let here = banded_tile(workgroup, vec2<u32>(rows, 128u));
  if (here.piece >= p.splits) {
    return;
  }
  let a_base = base_of_a(here.batch);
  let b_base = base_of_b(here.batch);
  let m_own = subgroup / 2u * (rows / 2u);
  let n_own = subgroup % 2u * 64u;
  @repeat(i, 4) {
    @if(has_a_halves) var a$i = vec4<u32>();
    @else var a$i = load_group_a(a_base, here.m0, here.k_begin, here.k_end, t + 128u * $i);
  }
  @repeat(i, 4) {
    @if(has_a_halves) var b$i = vec4<u32>();
    @else var b$i = load_group_b(b_base, here.n0, here.k_begin, here.k_end, t + 128u * $i);
  }
  var step = find_windows(here.batch, here.m0, here.n0, here.k_begin, here.k_end, t);
  @if(has_a_halves) let has_one_pass = false; // before the copies'
  @else let has_one_pass = step.is_only_pass;
  @if(has_a_halves) let is_elsewhere = !is_last_pass(step);
  @else let is_elsewhere = !has_one_pass && step.k != here.k_begin;
  if (is_elsewhere) {
    @repeat(i, 4) a$i = load_group_a(a_base, here.m0, step.k, here.k_end, t + 128u * $i);
    @repeat(i, 4) b$i = load_group_b(b_base, here.n0, step.k, here.k_end, t + 128u * $i);
  }
  var level = step.level; // of the sums
  @repeat(i, 4) @repeat(j, 4) var s$i$j = Sum();
  var k0 = step.k;
  @if(has_a_halves) k0 = select(k0, here.k_end, is_last_pass(step));
  while (k0 < here.k_end) {
    if (has_one_pass) {
      @repeat(i, 4) a$i = scaled_group(a$i, step.a_factor);
      @repeat(i, 4) b$i = scaled_group(b$i, step.b_factor);
    } else {
      if (step.a_factor != 0.0) {
        @repeat(i, 4) a$i = scaled_group(a$i, step.a_factor);
      } else if (is_windowed(step, top_in_a(step))) {
        let a_top = top_in_a(step);
        @repeat(i, 4) a$i = windowed_group(a$i, a_top);
      }
      if (step.b_factor != 0.0) {
        @repeat(i, 4) b$i = scaled_group(b$i, step.b_factor);
      } else if (is_windowed(step, top_in_b(step))) {
        let b_top = top_in_b(step);
        @repeat(i, 4) b$i = windowed_group(b$i, b_top);
      }
    }
    workgroupBarrier();
    @repeat(i, 4) stage_a(t + 128u * $i, a$i);
    @repeat(i, 4) stage_b(t + 128u * $i, b$i);
    if (!has_one_pass) {
      convert_staged(step, t);
    }
    workgroupBarrier();
    step.k += step_k;
    if (!has_one_pass) {
      for (; level > step.level; level--) {
        @repeat(i, 4) @repeat(j, 4) s$i$j = subgroupMatrixScalarMultiply(s$i$j, level_down);
      }
      if (step.k % block_k == 0u || step.k >= here.k_end) {
        step = find_step(step);
      }
    }
    @repeat(i, 4) a$i = load_group_a(a_base, here.m0, step.k, here.k_end, t + 128u * $i);
    @repeat(i, 4) b$i = load_group_b(b_base, here.n0, step.k, here.k_end, t + 128u * $i);
    for (var k = 0u; k < step_k; k += 16u) {
      @repeat(i, 4) let x$i = left(m_own + 16u * $i, k);
      @repeat(i, 4) let y$i = right(k, n_own + 16u * $i);
      @repeat(i, 4) @repeat(j, 4) s$i$j = subgroupMatrixMultiplyAccumulate(x$i, y$j, s$i$j);
    }
    k0 = step.k;
    @if(has_a_halves) k0 = select(k0, here.k_end, is_last_pass(step));
  }
  @if(has_a_halves) {
    for (; level > 0; level--) {
      @repeat(i, 4) @repeat(j, 4) s$i$j = subgroupMatrixScalarMultiply(s$i$j, level_down);
    }
    let a_at = halves_at(p.a_halves_at, select(0u, here.batch, p.a_batch != 0u), here.m0, p.m, here.k_end, t);
    let b_at = halves_at(p.b_halves_at, select(0u, here.batch, p.b_batch != 0u), here.n0, p.n, here.k_end, t);
    let first = first_step(here.k_begin, here.k_end);
    @repeat(i, 4) a$i = half_of_a(a_at, first, t, $iu, true);
    @repeat(i, 4) b$i = half_of_b(b_at, first, t, $iu, true);
    for (var k0 = here.k_begin; k0 < here.k_end; k0 += step_k) {
      workgroupBarrier();
      @repeat(i, 4) tile[place_across(0u, t + 128u * $i)] = a$i;
      @repeat(i, 4) tile[place_across(across_b, t + 128u * $i)] = b$i;
      workgroupBarrier();
      let next = step_after(k0, here.k_end);
      @repeat(i, 4) a$i = half_of_a(a_at, next, t, $iu, false);
      @repeat(i, 4) b$i = half_of_b(b_at, next, t, $iu, false);
      for (var k = 0u; k < step_k; k += 16u) {
        @repeat(i, 4) let x$i = left_across(m_own + 16u * $i, k);
        @repeat(i, 4) let y$i = right_across(k, n_own + 16u * $i);
        @repeat(i, 4) @repeat(j, 4) s$i$j = subgroupMatrixMultiplyAccumulate(x$i, y$j, s$i$j);
      }
    }
  }
  unit = unit_of(level);
  @repeat(i, 4) store_rows(s$i0, s$i1, s$i2, s$i3, subgroup, t, here, 16u * $i);
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32, @builtin(subgroup_id) subgroup: u32) {
  bf16_product(wid.y * groups.x + wid.x, t, subgroup);
}
