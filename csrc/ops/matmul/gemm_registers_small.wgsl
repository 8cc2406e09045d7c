// gemm_registers.wgsl for products with too few tiles of 128 x 128 to fill the device. A workgroup computes `side` x `side`
// elements. Its four teams of 64 invocations share the steps of K: each team adds up a quarter of every step, `side` / 8
// rows and columns an invocation, and the four sums are added at the end. The next step is loaded while one is computed.
//
// @operand c: words {f32, f16, bf16, bits128}
// @operand a: in {bits128, bits64}
// @operand b: in like a
// @const   wide: bool // tiles of 64 x 64, else of 32 x 32

import package::matmul::blocks::{step_place};
import package::matmul::joined::{column_in_batch, in_batch};
import package::matmul::grouped::{last_group, load4_a, load4_b, store_group_c};
import package::matmul::outer::{outer_add};
import package::matmul::product::{Params, acc_t, acc_scalar, fuse, BandedTile, banded_tile, column_of_c};
import package::matmul::product::{store_second, store4_second};
// @require !c_along_m && !joined

@if(wide) const side = 64u;
@else const side = 32u;

const teams = 4u;

// Of K, for all teams. Each invocation loads two groups of four from A and two from B for it.
const step_k = 2048u / side;
const team_k = step_k / teams;

const side_groups = side / 4u;
// Both tiles have K outermost. One group is padding, against bank conflicts.
const pitch = side_groups + 1u;
const tile_size = step_k * pitch;

// The tile of A, then that of B. At the end the teams' sums of 32 x 32 elements.
var<workgroup> tile: array<vec4<f32>, 2u * tile_size>;

// Where group g, of 512 in a tile, starts. Groups that run along K: 16 elements of a row for four neighbouring
// invocations, which are whole lines of the cache, so that their stores meet few bank conflicts.
fn place_in_tile(g: u32, along_k: bool) -> vec2<u32> { // across K, along K
  if (along_k) {
    return vec2<u32>(g / 4u % side, (g / (4u * side) * 4u + g % 4u) * 4u);
  }
  return vec2<u32>(g % side_groups * 4u, g / side_groups);
}

fn load_group_a(base: u32, m0: u32, k0: u32, k_end: u32, g: u32) -> vec4<f32> {
  let at = place_in_tile(g, a_along_k) + vec2<u32>(m0, k0);
  if (at.y >= k_end) {
    return vec4<f32>();
  }
  if (a_along_k) {
    return load4_a((base + min(at.x, p.m - 1u) * p.a_row + at.y) >> 2u);
  }
  return load4_a((base + min(at.x, last_group(p.m)) + at.y * p.a_column) >> 2u);
}

fn load_group_b(base: u32, n0: u32, k0: u32, k_end: u32, g: u32) -> vec4<f32> {
  let at = place_in_tile(g, b_along_k) + vec2<u32>(n0, k0);
  if (at.y >= k_end) {
    return vec4<f32>();
  }
  if (b_along_k) {
    return load4_b((base + min(at.x, p.n - 1u) * p.b_column + at.y) >> 2u);
  }
  return load4_b((base + min(at.x, last_group(p.n)) + at.y * p.b_row) >> 2u);
}

fn stage(start: u32, g: u32, along_k: bool, v: vec4<f32>) {
  let at = place_in_tile(g, along_k);
  let i = start + at.y * pitch + at.x / 4u;
  if (along_k) {
    let lane = at.x % 4u;
    tile[i][lane] = v.x;
    tile[i + pitch][lane] = v.y;
    tile[i + 2u * pitch][lane] = v.z;
    tile[i + 3u * pitch][lane] = v.w;
  } else {
    tile[i] = v;
  }
}

// An invocation's sums: 4 x 4 elements, or 8 x 8 as four such blocks.
@if(wide)
struct Sums {
  s00: mat4x4<f32>,
  s01: mat4x4<f32>,
  s10: mat4x4<f32>,
  s11: mat4x4<f32>,
}
@else
struct Sums {
  s00: mat4x4<f32>,
}

// Adds the products for index k of a step.
fn add_products(sums: Sums, k: u32, row: u32, column: u32) -> Sums {
  let a = k * pitch + row;
  let b = tile_size + k * pitch + column;
  @if(wide) {
    return Sums(outer_add(tile[a], tile[b], sums.s00), outer_add(tile[a], tile[b + 8u], sums.s01),
                outer_add(tile[a + 8u], tile[b], sums.s10), outer_add(tile[a + 8u], tile[b + 8u], sums.s11));
  }
  @else return Sums(outer_add(tile[a], tile[b], sums.s00));
}

// Adds the products of a team's part of a step, eight at a time where a GPU runs it.
fn add_part(sums: Sums, first_k: u32, row: u32, column: u32) -> Sums {
  var added = sums;
  @if(rolled) {
    for (var k = first_k; k < first_k + team_k; k++) {
      added = add_products(added, k, row, column);
    }
  }
  @else {
    for (var k = first_k; k < first_k + team_k; k += 8u) {
      added = add_products(added, k, row, column);
      added = add_products(added, k + 1u, row, column);
      added = add_products(added, k + 2u, row, column);
      added = add_products(added, k + 3u, row, column);
      added = add_products(added, k + 4u, row, column);
      added = add_products(added, k + 5u, row, column);
      added = add_products(added, k + 6u, row, column);
      added = add_products(added, k + 7u, row, column);
    }
  }
  return added;
}

// Adds the teams' sums of 32 x 32 elements, and stores them. An invocation stores one group.
fn store_sums(acc: mat4x4<f32>, t: u32, here: BandedTile, m0: u32, n0: u32) {
  let at = t / 64u * 256u + t % 64u / 8u * 32u + t % 8u;
  workgroupBarrier();
  tile[at] = acc[0];
  tile[at + 8u] = acc[1];
  tile[at + 16u] = acc[2];
  tile[at + 24u] = acc[3];
  workgroupBarrier();
  let m = m0 + t / 8u;
  let n = n0 + t % 8u * 4u;
  if (m < p.m && n < p.n) {
    store_group_c(here, m, n, (tile[t] + tile[t + 256u]) + (tile[t + 512u] + tile[t + 768u]));
  }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let here = banded_tile(wid.y * groups.x + wid.x, vec2<u32>(side));
  if (here.piece >= p.splits) {
    return;
  }

  let row = t % 64u / 8u;
  let column = t % 8u;
  let first_k = t / 64u * team_k;
  let a_base = p.a_at * 4u + here.batch * p.a_batch;
  let b_base = p.b_at * 4u + here.batch * p.b_batch;
  var sums = Sums();
  let first = step_place(here.k_begin, here.k_end);
  var a0 = load_group_a(a_base + first.a, here.m0, first.k, first.end, t);
  var a1 = load_group_a(a_base + first.a, here.m0, first.k, first.end, t + 256u);
  var b0 = load_group_b(b_base + first.b, here.n0, first.k, first.end, t);
  var b1 = load_group_b(b_base + first.b, here.n0, first.k, first.end, t + 256u);
  for (var k0 = here.k_begin; k0 < here.k_end; k0 += step_k) {
    workgroupBarrier();
    stage(0u, t, a_along_k, a0);
    stage(0u, t + 256u, a_along_k, a1);
    stage(tile_size, t, b_along_k, b0);
    stage(tile_size, t + 256u, b_along_k, b1);
    workgroupBarrier();
    let next = step_place(k0 + step_k, here.k_end);
    a0 = load_group_a(a_base + next.a, here.m0, next.k, next.end, t);
    a1 = load_group_a(a_base + next.a, here.m0, next.k, next.end, t + 256u);
    b0 = load_group_b(b_base + next.b, here.n0, next.k, next.end, t);
    b1 = load_group_b(b_base + next.b, here.n0, next.k, next.end, t + 256u);
    sums = add_part(sums, first_k, row, column);
  }
  store_sums(sums.s00, t, here, here.m0, here.n0);
  @if(wide) {
    store_sums(sums.s01, t, here, here.m0, here.n0 + 32u);
    store_sums(sums.s10, t, here, here.m0 + 32u, here.n0);
    store_sums(sums.s11, t, here, here.m0 + 32u, here.n0 + 32u);
  }
}
