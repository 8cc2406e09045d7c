// gemm.wgsl for large matrices of floating point numbers that lie in groups of four: 128 x 128 or 64 x 128 elements a
// workgroup, 8 x 8 an invocation, K in steps of 8, float32 in workgroup memory. Both tiles are kept with K outermost and
// twice: the next step is loaded while this one is computed, with one barrier a step.
//
// @operand c: words {f32, f16, bf16, bits128}
// @operand a: in {bits128, bits64}
// @operand b: in like a
// @const   tile_rows: u32 in {64, 128}
// @const   whole: bool // K, and each piece of it, is a multiple of 16: every step exists as a whole

import package::matmul::blocks::{StepPlace, step_place};
import package::matmul::joined::{find_batches, batch_of_column, column_in_batch, in_batch};
import package::matmul::grouped::{last_group, load4_a, load4_b, store_groups, first_of_group};
import package::matmul::product::{Params, acc_t, acc_scalar, fuse, BandedTile, banded_tile, column_of_c};
import package::matmul::product::{store_second, store4_second};
// @require !whole || !(blocked || rolled)
// @require !joined || !(blocked || c_along_m)

const tile_columns = 128u;
const step_k = 8u;
const invocations = 2u * tile_rows;
const pitch_a = tile_rows / 4u + 1u; // groups and one of padding, against bank conflicts
const pitch_b = tile_columns / 4u + 1u;
const size_a = step_k * pitch_a;
const size_b = step_k * pitch_b;
var<workgroup> tile_a: array<vec4<f32>, 2u * size_a>;
var<workgroup> tile_b: array<vec4<f32>, 2u * size_b>;

// Where group t of a tile with `side` rows, or columns, lies along K in a step. An invocation loads one group of four of A,
// and of B one, or two with tiles of 64 rows.
fn k_of_group(t: u32, along_k: bool, side: u32) -> u32 {
  return select(t / (side / 4u), (t & 1u) * 4u, along_k);
}

// The row of group t, or the first of its four rows: `first` is the tile's, and `count` those of the matrix.
fn row_of_group(first: u32, count: u32, along_k: bool, t: u32, side: u32) -> u32 {
  return select(min(first + t % (side / 4u) * 4u, last_group(count)), min(first + (t >> 1u), count - 1u), along_k);
}

// Where an invocation's group lies in the step at k = 0, in groups. `start` is the element of its row, or of its first row, at k = 0,
// and `along` the stride along K. What does not depend on the step is computed before the loop.
fn place_of_group(start: u32, along: u32, along_k: bool, t: u32, side: u32) -> u32 {
  let k = k_of_group(t, along_k, side);
  return (start + select(k * along, k, along_k)) >> 2u;
}

// How far the step at k lies from that, with the stride along K.
fn groups_to_step(k: u32, along: u32, along_k: bool) -> u32 {
  return select(k * (along >> 2u), k >> 2u, along_k);
}

fn a_place(batch: u32, m0: u32, t: u32) -> u32 {
  let row = row_of_group(m0, p.m, a_along_k, t, tile_rows);
  return place_of_group(p.a_at * 4u + batch * p.a_batch + select(row, row * p.a_row, a_along_k), p.a_column, a_along_k, t, tile_rows);
}

fn load_group_a(place: u32, step: StepPlace, t: u32) -> vec4<f32> {
  if (whole || step.k + k_of_group(t, a_along_k, tile_rows) < step.end) {
    return load4_a(place + (step.a >> 2u) + groups_to_step(step.k, p.a_column, a_along_k));
  }
  return vec4<f32>();
}

// The same for B, and what belongs to a step. A convolution kernel defines its own versions.
alias b_place_t = u32;

alias b_step_t = StepPlace;

fn b_place(batch: u32, n0: u32, t: u32) -> b_place_t {
  let n = row_of_group(n0, p.n, b_along_k, t, tile_columns);
  let start = p.b_at * 4u + (batch + batch_of_column(n)) * p.b_batch;
  let column = column_in_batch(n);
  return place_of_group(start + select(column, column * p.b_column, b_along_k), p.b_row, b_along_k, t, tile_columns);
}

fn b_step(step: StepPlace, t: u32) -> b_step_t {
  return step;
}

fn load_group_b(place: b_place_t, step: b_step_t, t: u32) -> vec4<f32> {
  if (whole || step.k + k_of_group(t, b_along_k, tile_columns) < step.end) {
    return load4_b(place + (step.b >> 2u) + groups_to_step(step.k, p.b_row, b_along_k));
  }
  return vec4<f32>();
}

fn store_group_a(tile: u32, t: u32, v: vec4<f32>) {
  if (a_along_k) {
    let i = tile + (t & 1u) * 4u * pitch_a + (t >> 3u);
    let lane = (t >> 1u) & 3u;
    tile_a[i][lane] = v.x;
    tile_a[i + pitch_a][lane] = v.y;
    tile_a[i + 2u * pitch_a][lane] = v.z;
    tile_a[i + 3u * pitch_a][lane] = v.w;
  } else {
    tile_a[tile + t / (tile_rows / 4u) * pitch_a + t % (tile_rows / 4u)] = v;
  }
}

fn store_group_b(tile: u32, t: u32, v: vec4<f32>) {
  if (b_along_k) {
    let i = tile + (t & 1u) * 4u * pitch_b + (t >> 3u);
    let lane = (t >> 1u) & 3u;
    tile_b[i][lane] = v.x;
    tile_b[i + pitch_b][lane] = v.y;
    tile_b[i + 2u * pitch_b][lane] = v.z;
    tile_b[i + 3u * pitch_b][lane] = v.w;
  } else {
    tile_b[tile + t / (tile_columns / 4u) * pitch_b + t % (tile_columns / 4u)] = v;
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

// Adds the products for one index of K in a step, whose tiles start at `a` and `b`.
fn add_products(sums: Sums, a: u32, b: u32, k: u32, row: u32, column: u32) -> Sums {
  let a0 = tile_a[a + k * pitch_a + row];
  let a1 = tile_a[a + k * pitch_a + tile_rows / 8u + row];
  let b0 = tile_b[b + k * pitch_b + column];
  let b1 = tile_b[b + k * pitch_b + tile_columns / 8u + column];
  return Sums(add_row(sums.r0, a0.x, b0, b1), add_row(sums.r1, a0.y, b0, b1), add_row(sums.r2, a0.z, b0, b1),
              add_row(sums.r3, a0.w, b0, b1), add_row(sums.r4, a1.x, b0, b1), add_row(sums.r5, a1.y, b0, b1),
              add_row(sums.r6, a1.z, b0, b1), add_row(sums.r7, a1.w, b0, b1));
}

// Adds the products of a step. Written out where a GPU runs it: compilers leave the loop as it is, and it takes 1.3 times as
// long.
fn add_step(sums: Sums, a: u32, b: u32, row: u32, column: u32) -> Sums {
  var added = sums;
  @if(rolled) {
    for (var k = 0u; k < step_k; k++) {
      added = add_products(added, a, b, k, row, column);
    }
  }
  @else {
    @repeat(i, 8) added = add_products(added, a, b, $iu, row, column);
  }
  return added;
}

// What an invocation loads of a step.
struct Loaded {
  a: vec4<f32>,
  b: vec4<f32>,
  b_second: vec4<f32>, // of tiles of 64 rows
}

struct LoadPlaces {
  a: u32,
  b: b_place_t,
  b_second: b_place_t,
}

// A step of K: where it lies, and what of B's places belongs to it, also for the second group of tiles of 64 rows.
struct Step {
  place: StepPlace,
  b: b_step_t,
  b_second: b_step_t,
}

fn first_step(k: u32, end: u32, t: u32) -> Step {
  let place = step_place(k, end);
  return Step(place, b_step(place, t), b_step(place, t + invocations));
}

// The step at k, which follows `before`. A convolution kernel may find it with less work than first_step() takes.
fn next_step(before: Step, k: u32, end: u32, t: u32) -> Step {
  return first_step(k, end, t);
}

fn load_step(places: LoadPlaces, step: Step, t: u32) -> Loaded {
  var loaded = Loaded();
  loaded.a = load_group_a(places.a, step.place, t);
  loaded.b = load_group_b(places.b, step.b, t);
  if (tile_rows == 64u) {
    loaded.b_second = load_group_b(places.b_second, step.b_second, t + invocations);
  }
  return loaded;
}

// The step that was loaded last.
var<private> last_step: Step;

fn load_next(places: LoadPlaces, k: u32, end: u32, t: u32) -> Loaded {
  last_step = next_step(last_step, k, end, t);
  return load_step(places, last_step, t);
}

fn store_step(a: u32, b: u32, t: u32, loaded: Loaded) {
  store_group_a(a, t, loaded.a);
  store_group_b(b, t, loaded.b);
  if (tile_rows == 64u) {
    store_group_b(b, t + invocations, loaded.b_second);
  }
}

// Adds the products of the steps at k0, which is staged, and behind it, and stages the next one, if `has_next`. Two steps at
// a time: then the addresses of both tiles are constants.
fn add_two_steps(sums: Sums, places: LoadPlaces, k0: u32, end: u32, t: u32, row: u32, column: u32, has_next: bool) -> Sums {
  let odd = load_next(places, k0 + step_k, end, t);
  let half = add_step(sums, 0u, 0u, row, column);
  store_step(size_a, size_b, t, odd);
  workgroupBarrier();
  if (!has_next) {
    return add_step(half, size_a, size_b, row, column);
  }
  let even = load_next(places, k0 + 2u * step_k, end, t);
  let added = add_step(half, size_a, size_b, row, column);
  store_step(0u, 0u, t, even);
  workgroupBarrier();
  return added;
}

// What a convolution kernel finds once for a tile.
fn start_tile(here: BandedTile, t: u32) {
}

// The tile of a workgroup.
fn large_product(workgroup: u32, t: u32) {
  let here = banded_tile(workgroup, vec2<u32>(tile_rows, tile_columns));
  if (here.piece >= p.splits) {
    return;
  }
  find_batches(here.n0);
  start_tile(here, t);

  // 32 neighbouring invocations compute 4 x 8 groups.
  let row = (t >> 6u) * 4u + ((t & 31u) >> 3u);
  let column = ((t >> 5u) & 1u) * 8u + (t & 7u);
  let places = LoadPlaces(a_place(here.batch, here.m0, t), b_place(here.batch, here.n0, t),
                          b_place(here.batch, here.n0, t + invocations));
  var sums = Sums();
  last_step = first_step(here.k_begin, here.k_end, t);
  store_step(0u, 0u, t, load_step(places, last_step, t));
  workgroupBarrier();
  var k0 = here.k_begin;
  // Without tests the compiler moves loads in between the products. A second loop, with tests, for the last steps would cost as
  // much as that gains.
  @if(whole) {
    for (; k0 + 2u * step_k < here.k_end; k0 += 2u * step_k) {
      sums = add_two_steps(sums, places, k0, here.k_end, t, row, column, true);
    }
    sums = add_two_steps(sums, places, k0, here.k_end, t, row, column, false);
  }
  @else {
    // What lies behind the end is zero.
    for (; k0 < here.k_end; k0 += 2u * step_k) {
      sums = add_two_steps(sums, places, k0, here.k_end, t, row, column, true);
    }
  }

  const half_rows = tile_rows / 2u;
  const half_columns = tile_columns / 2u;
  let m = here.m0 + 4u * row;
  let n = here.n0 + first_of_group(column);
  store_groups(here, m, n, mat4x4<f32>(sums.r0[0], sums.r1[0], sums.r2[0], sums.r3[0]));
  store_groups(here, m, n + half_columns, mat4x4<f32>(sums.r0[1], sums.r1[1], sums.r2[1], sums.r3[1]));
  store_groups(here, m + half_rows, n, mat4x4<f32>(sums.r4[0], sums.r5[0], sums.r6[0], sums.r7[0]));
  store_groups(here, m + half_rows, n + half_columns, mat4x4<f32>(sums.r4[1], sums.r5[1], sums.r6[1], sums.r7[1]));
}

@compute @workgroup_size(2 * tile_rows)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  large_product(wid.y * groups.x + wid.x, t);
}
