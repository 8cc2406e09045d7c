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

import package::matmul::gemm_store::{store_group, without_missing};
import package::matmul::product::{Params, acc_t, epilogue, epilogue4, BandedTile, banded_tile, column_of_c};
import package::matmul::gemm_groups::{step_k, place_in_tile, line_of_group, load_group_a, load_group_b, base_of_a, base_of_b};
import package::matmul::gemm_matrix::{Left, Right, Sum, tile, rows, left, right, stage_a, stage_b, place_of_a, place_of_b};
import package::matmul::gemm_matrix::{store_rows};
@if(has_a_halves) import package::matmul::gemm_matrix::{step_after};
import package::matmul::gemm_windows::{find_windows, find_step, top_in_a, top_in_b, is_windowed};
import package::matmul::gemm_windows::{scaled_group, windowed_group, converted_a, converted_b};
import package::matmul::gemm_windows::{Step, level_down, unit_of};
import package::matmul::gemm_blocks::{block_k};
// @require tall && !c_along_m
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

// Whether group j of the step at k exists.
@if(has_a_halves)
fn half_exists(at: Halves, k: u32, t: u32, j: u32) -> bool {
  @if(whole) return true;
  @else return k + j * 8u + t / 16u < at.k_end;
}

@if(has_a_halves)
fn half_of_a(at: Halves, k: u32, t: u32, j: u32) -> vec4<u32> {
  if (half_exists(at, k, t, j)) {
    return load_a_halves(at.first + (k + j * 8u) * at.pitch);
  }
  return vec4<u32>();
}

@if(has_a_halves)
fn half_of_b(at: Halves, k: u32, t: u32, j: u32) -> vec4<u32> {
  if (half_exists(at, k, t, j)) {
    return load_b_halves(at.first + (k + j * 8u) * at.pitch);
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
  @if(has_a_halves) var a0 = vec4<u32>();
  @else var a0 = load_group_a(a_base, here.m0, here.k_begin, here.k_end, t);
  @if(has_a_halves) var a1 = vec4<u32>();
  @else var a1 = load_group_a(a_base, here.m0, here.k_begin, here.k_end, t + 128u);
  @if(has_a_halves) var a2 = vec4<u32>();
  @else var a2 = load_group_a(a_base, here.m0, here.k_begin, here.k_end, t + 256u);
  @if(has_a_halves) var a3 = vec4<u32>();
  @else var a3 = load_group_a(a_base, here.m0, here.k_begin, here.k_end, t + 384u);
  @if(has_a_halves) var b0 = vec4<u32>();
  @else var b0 = load_group_b(b_base, here.n0, here.k_begin, here.k_end, t);
  @if(has_a_halves) var b1 = vec4<u32>();
  @else var b1 = load_group_b(b_base, here.n0, here.k_begin, here.k_end, t + 128u);
  @if(has_a_halves) var b2 = vec4<u32>();
  @else var b2 = load_group_b(b_base, here.n0, here.k_begin, here.k_end, t + 256u);
  @if(has_a_halves) var b3 = vec4<u32>();
  @else var b3 = load_group_b(b_base, here.n0, here.k_begin, here.k_end, t + 384u);
  var step = find_windows(here.batch, here.m0, here.n0, here.k_begin, here.k_end, t);
  @if(has_a_halves) let has_one_pass = false; // before the copies'
  @else let has_one_pass = step.is_only_pass;
  @if(has_a_halves) let is_elsewhere = !is_last_pass(step);
  @else let is_elsewhere = !has_one_pass && step.k != here.k_begin;
  if (is_elsewhere) {
    a0 = load_group_a(a_base, here.m0, step.k, here.k_end, t);
    a1 = load_group_a(a_base, here.m0, step.k, here.k_end, t + 128u);
    a2 = load_group_a(a_base, here.m0, step.k, here.k_end, t + 256u);
    a3 = load_group_a(a_base, here.m0, step.k, here.k_end, t + 384u);
    b0 = load_group_b(b_base, here.n0, step.k, here.k_end, t);
    b1 = load_group_b(b_base, here.n0, step.k, here.k_end, t + 128u);
    b2 = load_group_b(b_base, here.n0, step.k, here.k_end, t + 256u);
    b3 = load_group_b(b_base, here.n0, step.k, here.k_end, t + 384u);
  }
  var level = step.level; // of the sums
  var s00 = Sum();
  var s01 = Sum();
  var s02 = Sum();
  var s03 = Sum();
  var s10 = Sum();
  var s11 = Sum();
  var s12 = Sum();
  var s13 = Sum();
  var s20 = Sum();
  var s21 = Sum();
  var s22 = Sum();
  var s23 = Sum();
  var s30 = Sum();
  var s31 = Sum();
  var s32 = Sum();
  var s33 = Sum();
  var k0 = step.k;
  @if(has_a_halves) k0 = select(k0, here.k_end, is_last_pass(step));
  while (k0 < here.k_end) {
    if (has_one_pass) {
      a0 = scaled_group(a0, step.a_factor);
      a1 = scaled_group(a1, step.a_factor);
      a2 = scaled_group(a2, step.a_factor);
      a3 = scaled_group(a3, step.a_factor);
      b0 = scaled_group(b0, step.b_factor);
      b1 = scaled_group(b1, step.b_factor);
      b2 = scaled_group(b2, step.b_factor);
      b3 = scaled_group(b3, step.b_factor);
    } else {
      if (step.a_factor != 0.0) {
        a0 = scaled_group(a0, step.a_factor);
        a1 = scaled_group(a1, step.a_factor);
        a2 = scaled_group(a2, step.a_factor);
        a3 = scaled_group(a3, step.a_factor);
      } else if (is_windowed(step, top_in_a(step))) {
        let a_top = top_in_a(step);
        a0 = windowed_group(a0, a_top);
        a1 = windowed_group(a1, a_top);
        a2 = windowed_group(a2, a_top);
        a3 = windowed_group(a3, a_top);
      }
      if (step.b_factor != 0.0) {
        b0 = scaled_group(b0, step.b_factor);
        b1 = scaled_group(b1, step.b_factor);
        b2 = scaled_group(b2, step.b_factor);
        b3 = scaled_group(b3, step.b_factor);
      } else if (is_windowed(step, top_in_b(step))) {
        let b_top = top_in_b(step);
        b0 = windowed_group(b0, b_top);
        b1 = windowed_group(b1, b_top);
        b2 = windowed_group(b2, b_top);
        b3 = windowed_group(b3, b_top);
      }
    }
    workgroupBarrier();
    stage_a(t, a0);
    stage_a(t + 128u, a1);
    stage_a(t + 256u, a2);
    stage_a(t + 384u, a3);
    stage_b(t, b0);
    stage_b(t + 128u, b1);
    stage_b(t + 256u, b2);
    stage_b(t + 384u, b3);
    if (!has_one_pass) {
      convert_staged(step, t);
    }
    workgroupBarrier();
    step.k += step_k;
    if (!has_one_pass) {
      for (; level > step.level; level--) {
        s00 = subgroupMatrixScalarMultiply(s00, level_down);
        s01 = subgroupMatrixScalarMultiply(s01, level_down);
        s02 = subgroupMatrixScalarMultiply(s02, level_down);
        s03 = subgroupMatrixScalarMultiply(s03, level_down);
        s10 = subgroupMatrixScalarMultiply(s10, level_down);
        s11 = subgroupMatrixScalarMultiply(s11, level_down);
        s12 = subgroupMatrixScalarMultiply(s12, level_down);
        s13 = subgroupMatrixScalarMultiply(s13, level_down);
        s20 = subgroupMatrixScalarMultiply(s20, level_down);
        s21 = subgroupMatrixScalarMultiply(s21, level_down);
        s22 = subgroupMatrixScalarMultiply(s22, level_down);
        s23 = subgroupMatrixScalarMultiply(s23, level_down);
        s30 = subgroupMatrixScalarMultiply(s30, level_down);
        s31 = subgroupMatrixScalarMultiply(s31, level_down);
        s32 = subgroupMatrixScalarMultiply(s32, level_down);
        s33 = subgroupMatrixScalarMultiply(s33, level_down);
      }
      if (step.k % block_k == 0u || step.k >= here.k_end) {
        step = find_step(step);
      }
    }
    a0 = load_group_a(a_base, here.m0, step.k, here.k_end, t);
    a1 = load_group_a(a_base, here.m0, step.k, here.k_end, t + 128u);
    a2 = load_group_a(a_base, here.m0, step.k, here.k_end, t + 256u);
    a3 = load_group_a(a_base, here.m0, step.k, here.k_end, t + 384u);
    b0 = load_group_b(b_base, here.n0, step.k, here.k_end, t);
    b1 = load_group_b(b_base, here.n0, step.k, here.k_end, t + 128u);
    b2 = load_group_b(b_base, here.n0, step.k, here.k_end, t + 256u);
    b3 = load_group_b(b_base, here.n0, step.k, here.k_end, t + 384u);
    for (var k = 0u; k < step_k; k += 16u) {
      let x0 = left(m_own, k);
      let x1 = left(m_own + 16u, k);
      let x2 = left(m_own + 32u, k);
      let x3 = left(m_own + 48u, k);
      let y0 = right(k, n_own);
      let y1 = right(k, n_own + 16u);
      let y2 = right(k, n_own + 32u);
      let y3 = right(k, n_own + 48u);
      s00 = subgroupMatrixMultiplyAccumulate(x0, y0, s00);
      s01 = subgroupMatrixMultiplyAccumulate(x0, y1, s01);
      s02 = subgroupMatrixMultiplyAccumulate(x0, y2, s02);
      s03 = subgroupMatrixMultiplyAccumulate(x0, y3, s03);
      s10 = subgroupMatrixMultiplyAccumulate(x1, y0, s10);
      s11 = subgroupMatrixMultiplyAccumulate(x1, y1, s11);
      s12 = subgroupMatrixMultiplyAccumulate(x1, y2, s12);
      s13 = subgroupMatrixMultiplyAccumulate(x1, y3, s13);
      s20 = subgroupMatrixMultiplyAccumulate(x2, y0, s20);
      s21 = subgroupMatrixMultiplyAccumulate(x2, y1, s21);
      s22 = subgroupMatrixMultiplyAccumulate(x2, y2, s22);
      s23 = subgroupMatrixMultiplyAccumulate(x2, y3, s23);
      s30 = subgroupMatrixMultiplyAccumulate(x3, y0, s30);
      s31 = subgroupMatrixMultiplyAccumulate(x3, y1, s31);
      s32 = subgroupMatrixMultiplyAccumulate(x3, y2, s32);
      s33 = subgroupMatrixMultiplyAccumulate(x3, y3, s33);
    }
    k0 = step.k;
    @if(has_a_halves) k0 = select(k0, here.k_end, is_last_pass(step));
  }
  @if(has_a_halves) {
    for (; level > 0; level--) {
      s00 = subgroupMatrixScalarMultiply(s00, level_down);
      s01 = subgroupMatrixScalarMultiply(s01, level_down);
      s02 = subgroupMatrixScalarMultiply(s02, level_down);
      s03 = subgroupMatrixScalarMultiply(s03, level_down);
      s10 = subgroupMatrixScalarMultiply(s10, level_down);
      s11 = subgroupMatrixScalarMultiply(s11, level_down);
      s12 = subgroupMatrixScalarMultiply(s12, level_down);
      s13 = subgroupMatrixScalarMultiply(s13, level_down);
      s20 = subgroupMatrixScalarMultiply(s20, level_down);
      s21 = subgroupMatrixScalarMultiply(s21, level_down);
      s22 = subgroupMatrixScalarMultiply(s22, level_down);
      s23 = subgroupMatrixScalarMultiply(s23, level_down);
      s30 = subgroupMatrixScalarMultiply(s30, level_down);
      s31 = subgroupMatrixScalarMultiply(s31, level_down);
      s32 = subgroupMatrixScalarMultiply(s32, level_down);
      s33 = subgroupMatrixScalarMultiply(s33, level_down);
    }
    let a_at = halves_at(p.a_halves_at, select(0u, here.batch, p.a_batch != 0u), here.m0, p.m, here.k_end, t);
    let b_at = halves_at(p.b_halves_at, select(0u, here.batch, p.b_batch != 0u), here.n0, p.n, here.k_end, t);
    a0 = half_of_a(a_at, here.k_begin, t, 0u);
    a1 = half_of_a(a_at, here.k_begin, t, 1u);
    a2 = half_of_a(a_at, here.k_begin, t, 2u);
    a3 = half_of_a(a_at, here.k_begin, t, 3u);
    b0 = half_of_b(b_at, here.k_begin, t, 0u);
    b1 = half_of_b(b_at, here.k_begin, t, 1u);
    b2 = half_of_b(b_at, here.k_begin, t, 2u);
    b3 = half_of_b(b_at, here.k_begin, t, 3u);
    for (var k0 = here.k_begin; k0 < here.k_end; k0 += step_k) {
      workgroupBarrier();
      tile[place_across(0u, t)] = a0;
      tile[place_across(0u, t + 128u)] = a1;
      tile[place_across(0u, t + 256u)] = a2;
      tile[place_across(0u, t + 384u)] = a3;
      tile[place_across(across_b, t)] = b0;
      tile[place_across(across_b, t + 128u)] = b1;
      tile[place_across(across_b, t + 256u)] = b2;
      tile[place_across(across_b, t + 384u)] = b3;
      workgroupBarrier();
      let next = step_after(k0, here.k_end);
      a0 = half_of_a(a_at, next, t, 0u);
      a1 = half_of_a(a_at, next, t, 1u);
      a2 = half_of_a(a_at, next, t, 2u);
      a3 = half_of_a(a_at, next, t, 3u);
      b0 = half_of_b(b_at, next, t, 0u);
      b1 = half_of_b(b_at, next, t, 1u);
      b2 = half_of_b(b_at, next, t, 2u);
      b3 = half_of_b(b_at, next, t, 3u);
      for (var k = 0u; k < step_k; k += 16u) {
        let x0 = left_across(m_own, k);
        let x1 = left_across(m_own + 16u, k);
        let x2 = left_across(m_own + 32u, k);
        let x3 = left_across(m_own + 48u, k);
        let y0 = right_across(k, n_own);
        let y1 = right_across(k, n_own + 16u);
        let y2 = right_across(k, n_own + 32u);
        let y3 = right_across(k, n_own + 48u);
        s00 = subgroupMatrixMultiplyAccumulate(x0, y0, s00);
        s01 = subgroupMatrixMultiplyAccumulate(x0, y1, s01);
        s02 = subgroupMatrixMultiplyAccumulate(x0, y2, s02);
        s03 = subgroupMatrixMultiplyAccumulate(x0, y3, s03);
        s10 = subgroupMatrixMultiplyAccumulate(x1, y0, s10);
        s11 = subgroupMatrixMultiplyAccumulate(x1, y1, s11);
        s12 = subgroupMatrixMultiplyAccumulate(x1, y2, s12);
        s13 = subgroupMatrixMultiplyAccumulate(x1, y3, s13);
        s20 = subgroupMatrixMultiplyAccumulate(x2, y0, s20);
        s21 = subgroupMatrixMultiplyAccumulate(x2, y1, s21);
        s22 = subgroupMatrixMultiplyAccumulate(x2, y2, s22);
        s23 = subgroupMatrixMultiplyAccumulate(x2, y3, s23);
        s30 = subgroupMatrixMultiplyAccumulate(x3, y0, s30);
        s31 = subgroupMatrixMultiplyAccumulate(x3, y1, s31);
        s32 = subgroupMatrixMultiplyAccumulate(x3, y2, s32);
        s33 = subgroupMatrixMultiplyAccumulate(x3, y3, s33);
      }
    }
  }
  unit = unit_of(level);
  store_rows(s00, s01, s02, s03, subgroup, t, here, 0u);
  store_rows(s10, s11, s12, s13, subgroup, t, here, 16u);
  store_rows(s20, s21, s22, s23, subgroup, t, here, 32u);
  store_rows(s30, s31, s32, s33, subgroup, t, here, 48u);
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32, @builtin(subgroup_id) subgroup: u32) {
  bf16_product(wid.y * groups.x + wid.x, t, subgroup);
}
