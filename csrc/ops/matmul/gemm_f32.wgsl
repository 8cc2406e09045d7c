// gemm.wgsl for large float32 matrices whose elements lie in groups of four: 128 x 128 elements a workgroup, 8 x 8 an
// invocation, K in steps of 8. Both tiles are kept with K outermost and twice: the next step is loaded while this one
// is computed, with one barrier a step.
//
// @operand c: out {bits128, f32}

import package::matmul::blocks::{StepPlace, step_place};
import package::matmul::grouped::{load4_a, load4_b, outer_add, store_groups};
import package::matmul::product::{Params, acc_t, acc_scalar, fuse, BandedTile, banded_tile, column_of_c};

const side = 128u;
const step_k = 8u;
const pitch = 33u; // 32 groups and one of padding, against bank conflicts
const tile_size = step_k * pitch;
var<workgroup> tile_a: array<vec4<f32>, 2u * tile_size>;
var<workgroup> tile_b: array<vec4<f32>, 2u * tile_size>;

// An invocation's share of a tile: one group of four.
fn load_group_a(base: u32, first: u32, k0: u32, k_end: u32, t: u32) -> vec4<f32> {
  if (a_along_k) {
    let k = k0 + (t & 1u) * 4u;
    let row = min(first + (t >> 1u), p.m - 1u);
    if (k < k_end) {
      return load4_a((base + row * p.a_row + k) >> 2u);
    }
  } else {
    let k = k0 + (t >> 5u);
    let row = min(first + (t & 31u) * 4u, p.m - 4u);
    if (k < k_end) {
      return load4_a((base + k * p.a_column + row) >> 2u);
    }
  }
  return vec4<f32>();
}

// Where B lies for an invocation's group, whatever the step; and what belongs to a step. A convolution kernel defines its
// own versions.
alias b_place_t = u32;

alias b_step_t = StepPlace;

fn b_place(batch: u32, n0: u32, t: u32) -> b_place_t {
  return p.b_at * 4u + batch * p.b_batch;
}

fn b_step(step: StepPlace, t: u32) -> b_step_t {
  return step;
}

fn load_group_b(place: b_place_t, step: b_step_t, n0: u32, t: u32) -> vec4<f32> {
  if (b_along_k) {
    let k = step.k + (t & 1u) * 4u;
    let column = min(n0 + (t >> 1u), p.n - 1u);
    if (k < step.end) {
      return load4_b((place + step.b + column * p.b_column + k) >> 2u);
    }
  } else {
    let k = step.k + (t >> 5u);
    let column = min(n0 + (t & 31u) * 4u, p.n - 4u);
    if (k < step.end) {
      return load4_b((place + step.b + k * p.b_row + column) >> 2u);
    }
  }
  return vec4<f32>();
}

fn store_group_a(tile: u32, t: u32, v: vec4<f32>) {
  if (a_along_k) {
    let i = tile + (t & 1u) * 4u * pitch + (t >> 3u);
    let lane = (t >> 1u) & 3u;
    tile_a[i][lane] = v.x;
    tile_a[i + pitch][lane] = v.y;
    tile_a[i + 2u * pitch][lane] = v.z;
    tile_a[i + 3u * pitch][lane] = v.w;
  } else {
    tile_a[tile + (t >> 5u) * pitch + (t & 31u)] = v;
  }
}

fn store_group_b(tile: u32, t: u32, v: vec4<f32>) {
  if (b_along_k) {
    let i = tile + (t & 1u) * 4u * pitch + (t >> 3u);
    let lane = (t >> 1u) & 3u;
    tile_b[i][lane] = v.x;
    tile_b[i + pitch][lane] = v.y;
    tile_b[i + 2u * pitch][lane] = v.z;
    tile_b[i + 3u * pitch][lane] = v.w;
  } else {
    tile_b[tile + (t >> 5u) * pitch + (t & 31u)] = v;
  }
}

// The tile of a workgroup.
fn large_product(workgroup: u32, t: u32) {
  let here = banded_tile(workgroup, vec2<u32>(side));
  if (here.piece >= p.splits) {
    return;
  }

  // 32 neighbouring invocations compute 4 x 8 groups.
  let row = (t >> 6u) * 4u + ((t & 31u) >> 3u);
  let column = ((t >> 5u) & 1u) * 8u + (t & 7u);
  let a_base = p.a_at * 4u + here.batch * p.a_batch;
  var acc00 = mat4x4<f32>();
  var acc01 = mat4x4<f32>();
  var acc10 = mat4x4<f32>();
  var acc11 = mat4x4<f32>();
  let first = step_place(here.k_begin, here.k_end);
  store_group_a(0u, t, load_group_a(a_base + first.a, here.m0, first.k, first.end, t));
  let place_b = b_place(here.batch, here.n0, t);
  store_group_b(0u, t, load_group_b(place_b, b_step(first, t), here.n0, t));
  workgroupBarrier();
  var tile = 0u;
  for (var k0 = here.k_begin; k0 < here.k_end; k0 += step_k) {
    let next = step_place(k0 + step_k, here.k_end);
    let next_a = load_group_a(a_base + next.a, here.m0, next.k, next.end, t);
    let next_b = load_group_b(place_b, b_step(next, t), here.n0, t);
    for (var k = 0u; k < step_k; k++) {
      let at = tile + k * pitch;
      let a0 = tile_a[at + row];
      let a1 = tile_a[at + 16u + row];
      let b0 = tile_b[at + column];
      let b1 = tile_b[at + 16u + column];
      acc00 = outer_add(a0, b0, acc00);
      acc01 = outer_add(a0, b1, acc01);
      acc10 = outer_add(a1, b0, acc10);
      acc11 = outer_add(a1, b1, acc11);
    }
    tile = tile_size - tile;
    store_group_a(tile, t, next_a);
    store_group_b(tile, t, next_b);
    workgroupBarrier();
  }

  let m = here.m0 + 4u * row;
  let n = here.n0 + 4u * column;
  store_groups(here, m, n, acc00);
  store_groups(here, m, n + 64u, acc01);
  store_groups(here, m + 64u, n, acc10);
  store_groups(here, m + 64u, n + 64u, acc11);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  large_product(wid.y * groups.x + wid.x, t);
}
