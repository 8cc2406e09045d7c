// The gradient of a weight with few channels, such as that of a picture's first convolution. An invocation adds up the taps of
// one line of the kernel for eight filters: as it moves along a line of y, `step` further elements of x serve the products of
// all taps and filters. Lines of y and x are staged for all invocations, `segment` positions of y at a time. Where a workgroup
// has few lines of taps, several parts of it take turns at the positions, and their sums are added at the end.
//
// What is missing at the edges is staged as zero. Its product with an infinity would be NaN instead of nothing: sums that are
// NaN are added up again, without what is missing.
//
// @operand c: out float
// @operand a: in {f32, f16, bf16, bits128} // bits128: of float32, in aligned groups of four along K or across it
// @operand b: in float
// @operand d: in float optional
// @operand e: in float optional
// @operand f: in float optional
// @operand g: in float optional
// @operand h: in float optional
// @operand i: in float optional
// @const   taps_z: u32 in 1..8 // of a line
// @const   step: u32 in {1, 2} // the convolution's stride along the width
// @const   across: u32 in {4, 8} // invocations with different filters
// @const   a_along_k: bool // neighbouring positions of y are neighbours in memory, else filters

import package::matmul::product::{Params, acc_t, acc_add, acc_mul, epilogue, BandedTile, banded_tile};
import package::conv::conv_places::{Params, Gathered, digits_of, two_levels, tap, position, is_inside, place_of_c};
import package::conv::conv_places::{place_of_further};
// @require weight

struct Params {
  lines: u32, // of taps, that a workgroup computes
  parts: u32, // into which it divides positions
}

const threads = 192u;
const most_lines = 24u; // kMostLines of strategies.cpp
const segment = 32u;
const together = 4u; // neighbouring positions that an invocation takes
const fours = 2u * across; // groups of four filters

// What a segment meets of a line of x. An odd distance between lines spreads them over the banks of workgroup memory.
const met = (segment - 1u) * step + taps_z;
const pitch = met / 2u * 2u + 1u;

// [position][filter]. A further group between positions spreads stores over the banks.
var<workgroup> y_staged: array<vec4<f32>, segment * row_pitch>;

// [line][place]. At the end, sums of one of an invocation's filters.
var<workgroup> x_staged: array<f32, max(most_lines * pitch, across * most_lines * taps_z)>;

// Where the lines of taps lie, and where the lines of x start that these meet with a line of y: `missing` beyond the edges.
var<workgroup> lines: array<Gathered, most_lines>;
var<workgroup> starts: array<u32, most_lines>;
const missing = 0xffffffffu;

// Four filters of a tap each, the first of `fours` and the second half.
struct Sums {
  low: array<vec4<f32>, taps_z>,
  high: array<vec4<f32>, taps_z>,
}

// For the line of y that a workgroup comes to. `place` is where its first position meets B with tap 0.
fn find_starts(place: Gathered, t: u32) {
  if (t < p.lines) {
    let at = bitcast<vec3<u32>>(place.at + lines[t].at);
    let start = place.offset + lines[t].offset + at.x * p.b_strides.x + at.y * p.b_strides.y;
    starts[t] = select(missing, start, all(at.xy < p.b_sizes.xy));
  }
}

// A row of y_staged holds the filters of one position. Where an invocation loads a group of four neighbouring positions, it
// stores them to rows that lie `groups_along` apart, so that invocations with neighbouring groups store to different banks.
const groups_along = segment / together;

fn row_in_segment(position: u32) -> u32 {
  @if(a_is_bits128 && a_along_k) return position % together * groups_along + position / together;
  @else return position;
}

// The distance between the rows of neighbouring positions of a group.
@if(a_is_bits128 && a_along_k) const next_row = groups_along;
@else const next_row = 1u;

const row_pitch = fours + 1u;

// What a turn of the loop in `stage` loads of y: four filters at `in_turn` positions.
@if(a_is_bits128 && a_along_k) const in_turn = together;
@else const in_turn = 1u;

alias Part = array<vec4<f32>, in_turn>;

// The first position and the group of four filters of part i.
fn place_in_segment(i: u32) -> vec2<u32> {
  @if(a_is_bits128 && a_along_k) return vec2<u32>(i % groups_along * together, i / groups_along);
  @elif(a_along_k) return vec2<u32>(i % segment, i / segment);
  @else return vec2<u32>(i / fours, i % fours);
}

// What does not exist is loaded from where something does, without a branch: loads that wait in branches take turns.
@if(a_is_bits128)
fn group_of_y(first: u32, at: u32, exists: bool) -> vec4<f32> {
  return select(vec4<f32>(), bitcast<vec4<f32>>(load_a(select(first, at, exists) >> 2u)), exists);
}

@if(!a_is_bits128)
fn element_of_y(first: u32, at: u32, m: u32, exists: bool) -> f32 {
  let found = exists && m < p.m;
  return select(0.0, load_a(select(first, at + m * p.a_row, found)), found);
}

// `first` is the place of the line of y in filter 0, z the first position, and m the first filter.
fn part_of_y(first: u32, z: u32, m: u32) -> Part {
  let at = first + z * p.a_column;
  let exists = z < p.position_row.x;
  @if(a_is_bits128 && a_along_k) {
    let rows = mat4x4<f32>(group_of_y(first, at + m * p.a_row, exists && m < p.m),
                           group_of_y(first, at + (m + 1u) * p.a_row, exists && m + 1u < p.m),
                           group_of_y(first, at + (m + 2u) * p.a_row, exists && m + 2u < p.m),
                           group_of_y(first, at + (m + 3u) * p.a_row, exists && m + 3u < p.m));
    let columns = transpose(rows);
    return Part(columns[0], columns[1], columns[2], columns[3]);
  }
  @elif(a_is_bits128) return Part(group_of_y(first, at + m, exists && m < p.m));
  @else {
    return Part(vec4<f32>(element_of_y(first, at, m, exists), element_of_y(first, at, m + 1u, exists),
                          element_of_y(first, at, m + 2u, exists), element_of_y(first, at, m + 3u, exists)));
  }
}

fn start_of_a(batch: u32) -> u32 {
  @if(a_is_bits128) return 4u * p.a_at + batch * p.a_batch;
  @else return p.a_at + batch * p.a_batch;
}

fn one_of_a(at: u32) -> f32 {
  @if(a_is_bits128) return bitcast<f32>(load_a(at >> 2u)[at & 3u]);
  @else return load_a(at);
}

// Stages the segment whose first position is z0. `first` is the place of the line of y in filter 0, and `z_of_x` that of its
// first position in lines of x.
fn stage(first: u32, z0: u32, z_of_x: i32, m0: u32, t: u32) {
  const y_parts = segment / in_turn * fours;
  const y_turns = (y_parts + threads - 1u) / threads;
  const x_turns = (most_lines * met + threads - 1u) / threads;
  var y = array<Part, y_turns>();
  var x = array<f32, x_turns>();
  for (var turn = 0u; turn < y_turns; turn++) {
    let place = place_in_segment(t + turn * threads);
    y[turn] = part_of_y(first, z0 + place.x, m0 + 4u * place.y);
  }
  for (var turn = 0u; turn < x_turns; turn++) {
    let i = min(t + turn * threads, p.lines * met - 1u);
    let start = starts[i / met];
    let z = bitcast<u32>(z_of_x + i32(i % met));
    let found = start != missing && z < p.b_sizes.z;
    x[turn] = select(0.0, load_b(select(p.b_at, start + z * p.b_strides.z, found)), found);
  }
  workgroupBarrier();
  for (var turn = 0u; turn < y_turns; turn++) {
    let i = t + turn * threads;
    let place = place_in_segment(i);
    if (i < y_parts) {
      for (var j = 0u; j < in_turn; j++) {
        y_staged[row_in_segment(place.x + j) * row_pitch + place.y] = y[turn][j];
      }
    }
  }
  for (var turn = 0u; turn < x_turns; turn++) {
    let i = t + turn * threads;
    if (i < p.lines * met) {
      x_staged[i / met * pitch + i % met] = x[turn];
    }
  }
  workgroupBarrier();
}

// The elements of x that an invocation's neighbouring positions meet.
const in_window = (together - 1u) * step + taps_z;
alias window_t = array<f32, in_window>;

// Adds the products at position i of those.
fn add_position(given: Sums, window: window_t, i: u32, low: vec4<f32>, high: vec4<f32>) -> Sums {
  var sums = given;
  for (var j = 0u; j < taps_z; j++) {
    let x = vec4<f32>(window[i * step + j]);
    sums.low[j] = fma(low, x, sums.low[j]);
    sums.high[j] = fma(high, x, sums.high[j]);
  }
  return sums;
}

// Adds the products of what is staged that are this part's.
fn add_staged(given: Sums, line: u32, lane: u32, part: u32, count: u32) -> Sums {
  var sums = given;
  for (var z0 = part * together; z0 < count; z0 += p.parts * together) {
    var window = window_t();
    for (var i = 0u; i < in_window; i++) {
      window[i] = x_staged[line * pitch + z0 * step + i];
    }
    let at = row_in_segment(z0) * row_pitch + lane;
    const next = next_row * row_pitch;
    sums = add_position(sums, window, 0u, y_staged[at], y_staged[at + across]);
    sums = add_position(sums, window, 1u, y_staged[at + next], y_staged[at + next + across]);
    sums = add_position(sums, window, 2u, y_staged[at + 2u * next], y_staged[at + 2u * next + across]);
    sums = add_position(sums, window, 3u, y_staged[at + 3u * next], y_staged[at + 3u * next + across]);
  }
  return sums;
}

// The sum over all parts of the workgroup, for the first of them. `apart`: the invocations of a part.
fn over_parts(sum: vec4<f32>, t: u32, apart: u32) -> vec4<f32> {
  workgroupBarrier();
  y_staged[t] = sum;
  workgroupBarrier();
  var total = sum;
  if (t < apart) {
    for (var part = 1u; part < p.parts; part++) {
      total += y_staged[t + part * apart];
    }
  }
  return total;
}

fn column_of_c(n: u32) -> u32 {
  return place_of_c(n);
}

fn column_of_further(n: u32, strides: vec4<u32>) -> u32 {
  return place_of_further(n, strides);
}

// An element of C, product by product.
fn sum_without_missing(here: BandedTile, m: u32, n: u32) -> f32 {
  let of_tap = tap(n);
  let of_a = start_of_a(here.batch) + m * p.a_row;
  let of_b = p.b_at + here.batch * p.b_batch + of_tap.offset;
  var sum = 0.0;
  for (var k = here.k_begin; k < here.k_end; k++) {
    let place = position(k);
    let at = place.at + of_tap.at;
    if (is_inside(at)) {
      let a = one_of_a(of_a + two_levels(k, p.position_volume, p.a_outer, p.a_column));
      sum = fma(a, load_b(of_b + place.offset + dot(vec3<u32>(at), p.b_strides.xyz)), sum);
    }
  }
  return sum;
}

// Stores the sums, one filter of each invocation at a time, so that neighbours store the elements of a row of C.
fn store_sums(here: BandedTile, sums: Sums, t: u32) {
  let columns = p.lines * taps_z;
  for (var turn = 0u; turn < 8u; turn++) {
    let high = turn >= 4u;
    workgroupBarrier();
    if (t < across * p.lines) {
      for (var j = 0u; j < taps_z; j++) {
        x_staged[t % across * columns + t / across * taps_z + j] = select(sums.low[j], sums.high[j], high)[turn % 4u];
      }
    }
    workgroupBarrier();
    for (var i = t; i < across * columns; i += threads) {
      let m = here.m0 + (select(0u, across, high) + i / columns) * 4u + turn % 4u;
      let n = here.n0 + i % columns;
      if (m < p.m && n < p.n) {
        var sum = x_staged[i];
        if (is_nan_f(sum)) {
          sum = sum_without_missing(here, m, n);
        }
        store_c(p.c_at + here.c_batch * p.c_batch + m * p.c_row + column_of_c(n), epilogue(sum, here.batch, m, n));
      }
    }
  }
}

@compute @workgroup_size(192)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let here = banded_tile(wid.y * groups.x + wid.x, vec2<u32>(4u * fours, p.lines * taps_z));
  if (here.piece >= p.splits) {
    return;
  }
  if (t < p.lines) {
    // Lines beyond the last one repeat it; their sums are not stored.
    lines[t] = tap(min(here.n0 + t * taps_z, p.n - taps_z));
  }
  let part = t / across / p.lines;
  let line = t / across % p.lines;
  let width = p.position_row.x;
  let of_b = p.b_at + here.batch * p.b_batch;
  var sums = Sums();
  for (var k = here.k_begin; k < here.k_end; k += width) {
    let place = position(k);
    let first = start_of_a(here.batch) + two_levels(k, p.position_volume, p.a_outer, p.a_column);
    workgroupBarrier();
    find_starts(Gathered(of_b + place.offset, place.at), t);
    workgroupBarrier();
    for (var z = 0u; z < width; z += segment) {
      stage(first, z, place.at.z + i32(z * step), here.m0, t);
      if (part < p.parts) {
        sums = add_staged(sums, line, t % across, part, min(segment, width - z));
      }
    }
  }
  if (p.parts > 1u) {
    for (var j = 0u; j < taps_z; j++) {
      sums.low[j] = over_parts(sums.low[j], t, across * p.lines);
      sums.high[j] = over_parts(sums.high[j], t, across * p.lines);
    }
  }
  store_sums(here, sums, t);
}
