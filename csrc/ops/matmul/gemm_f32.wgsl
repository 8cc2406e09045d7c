// gemm.wgsl for large float32 matrices whose elements lie in groups of four: 128 x 128 elements a workgroup, 8 x 8 an
// invocation, K in steps of 8. Both tiles are kept with K outermost and twice: the next step is loaded while this one
// is computed, with one barrier a step.
//
// @operand c: out {bits128, f32}

import package::matmul::blocks::{StepPlace, step_place};
import package::matmul::grouped::{last_group, load4_a, load4_b, store_groups};
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
    let row = min(first + (t & 31u) * 4u, last_group(p.m));
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
    let column = min(n0 + (t & 31u) * 4u, last_group(p.n));
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

// An invocation's 8 x 8 sums: two groups of four for each row.
struct Sums {
  r0: mat2x4<f32>,
  r1: mat2x4<f32>,
  r2: mat2x4<f32>,
  r3: mat2x4<f32>,
  r4: mat2x4<f32>,
  r5: mat2x4<f32>,
  r6: mat2x4<f32>,
  r7: mat2x4<f32>,
}

fn add_row(sums: mat2x4<f32>, a: f32, b0: vec4<f32>, b1: vec4<f32>) -> mat2x4<f32> {
  return mat2x4<f32>(fma(vec4<f32>(a), b0, sums[0]), fma(vec4<f32>(a), b1, sums[1]));
}

// Adds the products for one index of K, whose elements of A and B start at `at`.
fn add_products(sums: Sums, at: u32, row: u32, column: u32) -> Sums {
  let a0 = tile_a[at + row];
  let a1 = tile_a[at + 16u + row];
  let b0 = tile_b[at + column];
  let b1 = tile_b[at + 16u + column];
  return Sums(add_row(sums.r0, a0.x, b0, b1), add_row(sums.r1, a0.y, b0, b1), add_row(sums.r2, a0.z, b0, b1),
              add_row(sums.r3, a0.w, b0, b1), add_row(sums.r4, a1.x, b0, b1), add_row(sums.r5, a1.y, b0, b1),
              add_row(sums.r6, a1.z, b0, b1), add_row(sums.r7, a1.w, b0, b1));
}

// Adds the products of a step, whose tiles start at `tile`. Written out where a GPU runs it: compilers leave the loop as it
// is, and it takes 1.3 times as long.
fn add_step(sums: Sums, tile: u32, row: u32, column: u32) -> Sums {
  var added = sums;
  @if(rolled) {
    for (var k = 0u; k < step_k; k++) {
      added = add_products(added, tile + k * pitch, row, column);
    }
  }
  @else {
    added = add_products(added, tile, row, column);
    added = add_products(added, tile + pitch, row, column);
    added = add_products(added, tile + 2u * pitch, row, column);
    added = add_products(added, tile + 3u * pitch, row, column);
    added = add_products(added, tile + 4u * pitch, row, column);
    added = add_products(added, tile + 5u * pitch, row, column);
    added = add_products(added, tile + 6u * pitch, row, column);
    added = add_products(added, tile + 7u * pitch, row, column);
  }
  return added;
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
  let place_b = b_place(here.batch, here.n0, t);
  var sums = Sums();
  let first = step_place(here.k_begin, here.k_end);
  store_group_a(0u, t, load_group_a(a_base + first.a, here.m0, first.k, first.end, t));
  store_group_b(0u, t, load_group_b(place_b, b_step(first, t), here.n0, t));
  workgroupBarrier();
  // Two steps at a time: then the addresses of both tiles are constants.
  for (var k0 = here.k_begin; k0 < here.k_end; k0 += 2u * step_k) {
    let odd = step_place(k0 + step_k, here.k_end);
    let odd_a = load_group_a(a_base + odd.a, here.m0, odd.k, odd.end, t);
    let odd_b = load_group_b(place_b, b_step(odd, t), here.n0, t);
    sums = add_step(sums, 0u, row, column);
    if (k0 + step_k >= here.k_end) {
      break;
    }
    store_group_a(tile_size, t, odd_a);
    store_group_b(tile_size, t, odd_b);
    workgroupBarrier();
    let even = step_place(k0 + 2u * step_k, here.k_end);
    let even_a = load_group_a(a_base + even.a, here.m0, even.k, even.end, t);
    let even_b = load_group_b(place_b, b_step(even, t), here.n0, t);
    sums = add_step(sums, tile_size, row, column);
    store_group_a(0u, t, even_a);
    store_group_b(0u, t, even_b);
    workgroupBarrier();
  }

  let m = here.m0 + 4u * row;
  let n = here.n0 + 4u * column;
  store_groups(here, m, n, mat4x4<f32>(sums.r0[0], sums.r1[0], sums.r2[0], sums.r3[0]));
  store_groups(here, m, n + 64u, mat4x4<f32>(sums.r0[1], sums.r1[1], sums.r2[1], sums.r3[1]));
  store_groups(here, m + 64u, n, mat4x4<f32>(sums.r4[0], sums.r5[0], sums.r6[0], sums.r7[0]));
  store_groups(here, m + 64u, n + 64u, mat4x4<f32>(sums.r4[1], sums.r5[1], sums.r6[1], sums.r7[1]));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  large_product(wid.y * groups.x + wid.x, t);
}
