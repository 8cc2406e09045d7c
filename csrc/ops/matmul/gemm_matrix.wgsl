// gemm.wgsl for float16 on subgroup matrices, with sums in float32: 128 x 128 elements a workgroup of four
// subgroups, which compute 64 x 64 each, in 16 matrices. (64 x 128 and 32 x 64 if not `tall`.) Steps of K are staged in
// workgroup memory in groups of eight elements; what lies beyond an edge is staged as zero, or not used. The next step is loaded while
// this one is computed. gemm_bf16.wgsl, gemm_high.wgsl and conv_matrix.wgsl import what they share.
//
// @enable  f16 subgroups chromium_experimental_subgroup_matrix
// @operand c: words {f16, f32, bits128} // bits128: of float32, where groups of four are aligned and end at the edge
// @operand a: in {bits128, bits16} // bits128: groups of eight are aligned; behind the edges they are zero
// @operand b: in {bits128, bits16}
// @operand d: in {f16} optional
// @operand e: in float optional
// @operand f: in float optional
// @operand g: in float optional
// @operand h: in float optional
// @operand i: in float optional
// @const   tall: bool // tiles of 128 rows, else of 64
// @const   whole: bool // loads in the loop have no tests: what is staged lies in groups of eight, and pieces of K are whole steps,
//                         but for the end of K if `ragged`
// @const   ragged: bool // K is longer than a step and ends in a part of one: the last step of each piece is staged first, with tests

import package::matmul::gemm_store::{store_group, store_single, without_missing, in_units_of_c};
import package::matmul::blocks::{StepPlace, step_place};
import package::matmul::joined::{find_batches, batch_of_column, column_in_batch, in_batch};
import package::matmul::product::{Params, acc_t, epilogue, epilogue4, BandedTile, banded_tile, column_of_c};
import package::matmul::gemm_groups::{step_k, place_in_tile, line_of_group, load_group_a, load_group_b, base_of_a, base_of_b};
import package::matmul::gemm_groups::{place_of_group_a, place_of_group_b};
// @require !ragged || (whole && !blocked)
// @require !joined || (whole && !blocked && !c_along_m) // a step with tests finds a column's place, and so its batch, for each load

alias Left = subgroup_matrix_left<f16, 16, 16>;

alias Right = subgroup_matrix_right<f16, 16, 16>;

alias Sum = subgroup_matrix_result<f32, 16, 16>;

@if(tall) const rows = 128u;
@else const rows = 64u;

// Row pitches of the staged tiles, in groups of eight elements. One group is padding, against bank conflicts.
@if(a_along_k) const a_pitch = 5u;
@else const a_pitch = rows / 8u + 1u;

@if(b_along_k) const b_pitch = 5u;
@else const b_pitch = 17u;

@if(a_along_k) const b_start = rows * a_pitch;
@else const b_start = step_k * a_pitch;

// Row pitch of staged sums, in groups of four. Two groups are padding, against bank conflicts: a subgroup stores 8 rows of a matrix
// at once. Tiles of 64 rows have none: with it, a product of 4096 x 768 x 768 took 44 in place of 32 us (H200).
@if(tall) const sum_pitch = 18u;
@else const sum_pitch = 16u;

@if(!(tall && (a_along_k || b_along_k))) const staged = 64u * sum_pitch; // of store_rows(); the tiles take less
@elif(b_along_k) const staged = b_start + 128u * b_pitch;
@else const staged = b_start + step_k * b_pitch;

// The staged tile of A, then that of B. At the end store_rows() stages 16 rows of each subgroup's sums here.
var<workgroup> tile: array<vec4<u32>, staged>;

fn start_of_column_b(n: u32) -> u32 {
  return batch_of_column(n) * p.b_batch + column_in_batch(n) * p.b_column;
}

// Of a piece of K, the step that is staged first.
fn first_step(k_begin: u32, k_end: u32) -> u32 {
  @if(ragged) return (k_end - 1u) / step_k * step_k;
  @else return k_begin;
}

// Where A lies for group g of a tile, whatever the step. Tests for each group, of its step and its row, would make a product of
// 4096 cubed 5 to 8 % slower (H200), so whole steps have none.
fn a_place(batch: u32, m0: u32, g: u32) -> u32 {
  @if(whole && a_is_bits128) return place_of_group_a(base_of_a(batch), m0, g);
  @else return base_of_a(batch);
}

fn load_step_a(place: u32, step: StepPlace, m0: u32, g: u32) -> vec4<u32> {
  @if(whole && a_is_bits128) return load_a(place + ((step.a + step.k * p.a_column) >> 3u));
  @else return load_group_a(place + step.a, m0, step.k, step.end, g);
}

// Of the step that is staged first.
fn load_first_a(place: u32, step: StepPlace, batch: u32, m0: u32, g: u32) -> vec4<u32> {
  @if(ragged) return load_group_a(base_of_a(batch), m0, step.k, step.end, g);
  @else return load_step_a(place, step, m0, g);
}

// The same of B, and what the groups of a step have in common. A convolution kernel defines its own versions.
alias b_place_t = u32;

alias b_step_t = StepPlace;

fn b_place(batch: u32, n0: u32, g: u32) -> b_place_t {
  @if(whole && b_is_bits128) return place_of_group_b(base_of_b(batch), n0, g);
  @else return base_of_b(batch);
}

fn b_step(step: StepPlace, t: u32) -> b_step_t {
  return step;
}

// Of the step after that of `before`.
fn b_step_after(before: b_step_t, step: StepPlace, t: u32) -> b_step_t {
  return b_step(step, t);
}

fn load_step_b(place: b_place_t, step: b_step_t, n0: u32, g: u32) -> vec4<u32> {
  @if(whole && b_is_bits128) return load_b(place + ((step.b + step.k * p.b_row) >> 3u));
  @else return load_group_b(place + step.b, n0, step.k, step.end, g);
}

fn load_first_b(place: b_place_t, step: b_step_t, batch: u32, n0: u32, g: u32) -> vec4<u32> {
  @if(ragged) return load_group_b(base_of_b(batch), n0, step.k, step.end, g);
  @else return load_step_b(place, step, n0, g);
}

// The step to load in iteration k of the loop, for the next one. If `ragged`, the last step came first, then the others follow from
// the piece's first on, so it is k. Without tests, the last iteration loads a step that was loaded before, and which is not used
// (of a piece of one step, the step before the piece, or the first of K). To leave that out would take a branch, and what is
// loaded in a branch is waited for at its end.
fn step_after(k: u32, k_end: u32) -> u32 {
  @if(ragged) return min(k, max(first_step(0u, k_end), step_k) - step_k);
  @elif(whole) return min(k + step_k, k_end - step_k);
  @else return k + step_k;
}

// What a convolution kernel finds once for a tile.
fn start_tile(here: BandedTile, t: u32) {
}

// Where group g of a step lies.
fn place_of_a(g: u32) -> u32 {
  @if(a_along_k) return line_of_group(g) * a_pitch + g % 4u;
  @else return g / (rows / 8u) * a_pitch + g % (rows / 8u);
}

fn place_of_b(g: u32) -> u32 {
  @if(b_along_k) return b_start + line_of_group(g) * b_pitch + g % 4u;
  @else return b_start + g / 16u * b_pitch + g % 16u;
}

fn stage_a(g: u32, group: vec4<u32>) {
  tile[place_of_a(g)] = group;
}

fn stage_b(g: u32, group: vec4<u32>) {
  tile[place_of_b(g)] = group;
}

// The 16 x 16 matrix at row m and column k of the tile of A.
fn left(m: u32, k: u32) -> Left {
  @if(a_along_k) return subgroupMatrixLoad<Left, row_major>(&tile, m * a_pitch + k / 8u, a_pitch);
  @else return subgroupMatrixLoad<Left, col_major>(&tile, k * a_pitch + m / 8u, a_pitch);
}

fn right(k: u32, n: u32) -> Right {
  @if(b_along_k) return subgroupMatrixLoad<Right, col_major>(&tile, b_start + n * b_pitch + k / 8u, b_pitch);
  @else return subgroupMatrixLoad<Right, row_major>(&tile, b_start + k * b_pitch + n / 8u, b_pitch);
}

// The row of C of staged row `row` of 32: 16 of the tile's upper half, from its row m on, and 16 of the lower half, likewise.
fn row_of_staged(row: u32, here: BandedTile, m: u32) -> u32 {
  return here.m0 + row / 16u * (rows / 2u) + m + row % 16u;
}

// Where group j of the 32 of a staged row lies.
fn place_of_staged(row: u32, j: u32) -> u32 {
  return (row / 16u * 32u + j / 16u * 16u + row % 16u) * sum_pitch + j % 16u;
}

// Stores the 32 staged rows, four columns at a time.
fn store_staged(t: u32, here: BandedTile, m: u32) {
  for (var g = t; g < 1024u; g += 128u) {
    let row = g / 512u * 16u + g / 16u % 16u;
    let j = g / 256u % 2u * 16u + g % 16u;
    store_group(here, row_of_staged(row, here, m), here.n0 + j * 4u, bitcast<vec4<f32>>(tile[place_of_staged(row, j)]));
  }
}

// The same for halves, some of whose rows start in the middle of a word. There, groups of four begin one element later, and are
// whole words where columns are neighbours in C. Elements 125 to 127 and the first one are stored alone.
@if(!owns_c && !c_is_f32 && !c_is_bits128)
fn store_staged_halves(t: u32, here: BandedTile, m: u32, c: u32) {
  for (var g = t; g < 1024u; g += 128u) {
    let j = g % 32u; // Neighbours store groups of one row.
    let m_at = row_of_staged(g / 32u, here, m);
    let later = (c + m_at * p.c_row) % 2u;
    var group = bitcast<vec4<f32>>(tile[place_of_staged(g / 32u, j)]);
    if (later == 1u) {
      if (j == 31u) {
        continue;
      }
      group = vec4<f32>(group.yzw, bitcast<f32>(tile[place_of_staged(g / 32u, j + 1u)].x));
    }
    store_group(here, m_at, here.n0 + 4u * j + later, group);
  }
  let m_at = row_of_staged(t / 4u, here, m);
  if ((c + m_at * p.c_row) % 2u == 1u) {
    let n = (125u + t % 4u) % 128u;
    store_single(here, m_at, here.n0 + n, bitcast<f32>(tile[place_of_staged(t / 4u, n / 4u)][n % 4u]));
  }
}

// Stores 16 rows of each subgroup's sums, from row m of its own, by way of workgroup memory: 16 x 64 elements per subgroup.
fn store_rows(s0: Sum, s1: Sum, s2: Sum, s3: Sum, subgroup: u32, t: u32, here: BandedTile, m: u32) {
  workgroupBarrier();
  @repeat(i, 4) subgroupMatrixStore<row_major>(&tile, subgroup * 16u * sum_pitch + 4u * $i, s$i, sum_pitch);
  workgroupBarrier();
  @if(c_along_m) {
    for (var g = t; g < 1024u; g += 128u) {
      // Neighbours store 32 bytes of a column of halves together.
      let row = g % 4u * 4u;
      let column = g / 4u % 64u;
      let at = (g / 256u * 16u + row) * sum_pitch + column / 4u;
      let lane = column % 4u;
      store_group(here, row_of_staged(g / 512u * 16u + row, here, m), here.n0 + g / 256u % 2u * 64u + column,
                  bitcast<vec4<f32>>(vec4<u32>(tile[at][lane], tile[at + sum_pitch][lane],
                                               tile[at + 2u * sum_pitch][lane], tile[at + 3u * sum_pitch][lane])));
    }
  }
  @elif(owns_c || c_is_f32 || c_is_bits128) store_staged(t, here, m);
  @else {
    let c = p.c_at + here.c_batch * p.c_batch + column_of_c(here.n0);
    if ((c | p.c_row) % 2u == 0u) {
      store_staged(t, here, m);
    } else {
      store_staged_halves(t, here, m, c);
    }
  }
}

// The tile of a workgroup.
fn matrix_product(workgroup: u32, t: u32, subgroup: u32) {
  let here = banded_tile(workgroup, vec2<u32>(rows, 128u));
  if (here.piece >= p.splits) {
    return;
  }
  find_batches(here.n0);
  start_tile(here, t);
  let m_own = subgroup / 2u * (rows / 2u);
  let n_own = subgroup % 2u * 64u;

  @repeat(i, 2) let a_place$i = a_place(here.batch, here.m0, t + 128u * $i);
  @repeat(i, 2..4) @if(tall) let a_place$i = a_place(here.batch, here.m0, t + 128u * $i);
  @repeat(i, 4) let b_place$i = b_place(here.batch, here.n0, t + 128u * $i);
  let first = step_place(first_step(here.k_begin, here.k_end), here.k_end);
  var step_of_b = b_step(first, t);
  @repeat(i, 2) var a$i = vec4<u32>();
  @repeat(i, 2..4) @if(tall) var a$i = vec4<u32>();
  @repeat(i, 4) var b$i = vec4<u32>();
  if (here.k_begin < here.k_end) {
    @repeat(i, 2) a$i = load_first_a(a_place$i, first, here.batch, here.m0, t + 128u * $i);
    @repeat(i, 2..4) @if(tall) a$i = load_first_a(a_place$i, first, here.batch, here.m0, t + 128u * $i);
    @repeat(i, 4) b$i = load_first_b(b_place$i, step_of_b, here.batch, here.n0, t + 128u * $i);
  }
  @repeat(i, 2) @repeat(j, 4) var s$i$j = Sum();
  @repeat(i, 2..4) @repeat(j, 4) @if(tall) var s$i$j = Sum();
  for (var k0 = here.k_begin; k0 < here.k_end; k0 += step_k) {
    workgroupBarrier();
    @repeat(i, 2) stage_a(t + 128u * $i, a$i);
    @repeat(i, 2..4) @if(tall) stage_a(t + 128u * $i, a$i);
    @repeat(i, 4) stage_b(t + 128u * $i, b$i);
    workgroupBarrier();
    let next = step_place(step_after(k0, here.k_end), here.k_end);
    step_of_b = b_step_after(step_of_b, next, t);
    @repeat(i, 2) a$i = load_step_a(a_place$i, next, here.m0, t + 128u * $i);
    @repeat(i, 2..4) @if(tall) a$i = load_step_a(a_place$i, next, here.m0, t + 128u * $i);
    @repeat(i, 4) b$i = load_step_b(b_place$i, step_of_b, here.n0, t + 128u * $i);
    for (var k = 0u; k < step_k; k += 16u) {
      @repeat(i, 2) let x$i = left(m_own + 16u * $i, k);
      @repeat(i, 2..4) @if(tall) let x$i = left(m_own + 16u * $i, k);
      @repeat(j, 4) let y$j = right(k, n_own + 16u * $j);
      @repeat(i, 2) @repeat(j, 4) s$i$j = subgroupMatrixMultiplyAccumulate(x$i, y$j, s$i$j);
      @repeat(i, 2..4) @repeat(j, 4) @if(tall) s$i$j = subgroupMatrixMultiplyAccumulate(x$i, y$j, s$i$j);
    }
  }
  @repeat(i, 2) store_rows(s$i0, s$i1, s$i2, s$i3, subgroup, t, here, 16u * $i);
  @repeat(i, 2..4) @if(tall) store_rows(s$i0, s$i1, s$i2, s$i3, subgroup, t, here, 16u * $i);
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32, @builtin(subgroup_id) subgroup: u32) {
  matrix_product(wid.y * groups.x + wid.x, t, subgroup);
}
