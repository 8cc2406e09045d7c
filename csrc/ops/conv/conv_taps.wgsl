// The gradient of a weight with few filters in each group, as in a depthwise convolution: a matrix with few rows, whose
// elements are sums over all positions of all images. A workgroup computes the taps of one to three lines of the kernel for one
// filter. Its invocations divide the positions, so that neighbours read neighbours in memory, and their sums are added at the
// end. An invocation takes four neighbouring positions of y at a time, which share the elements of x (`wide`), or one.
//
// @operand c: out float
// @operand a: in {f32, f16, bf16, bits128, bits64} // y; bits128, bits64 as of x
// @operand b: in {f32, f16, bf16, bits128, bits64} // x
// @operand d: in float optional
// @operand e: in float optional
// @operand f: in float optional
// @operand g: in float optional
// @operand h: in float optional
// @operand i: in float optional
// @const   taps_z: u32 in 1..8 // of a line
// @const   together: {one, two, three} // lines
// @const   wide: bool // the dilation along the width is 1, and its stride is step_z
// @const   step_z: u32 in {1, 2}

import package::matmul::product::{Params, acc_t, acc_add, acc_mul, epilogue, BandedTile, banded_tile};
import package::conv::conv_places::{Params, Gathered, digits_of, two_levels, tap, place_of_c, place_of_further};
import package::conv::conv_neighbours::{met_t, elements_met, start_of_b, from_f32, from_halves};
// @require weight

struct Params {
  grid_volume: vec4<u32>, // divisors for groups of positions of y along a line
  grid_plane: vec4<u32>,
  grid_row: vec4<u32>,
}

const invocations = 256u;

@if(one) const lines_together = 1u;
@elif(two) const lines_together = 2u;
@else const lines_together = 3u;

@if(wide) const positions = 4u;
@else const positions = 1u;

// Elements of a line of x that a group of positions meets.
@if(wide) const columns_met = (positions - 1u) * step_z + taps_z;
@else const columns_met = taps_z;

alias y_t = array<f32, positions>;

// The sums of a line of taps. All loops over them are unrolled, so that they stay in registers.
alias Line = array<f32, taps_z>;

// Of each tap and invocation.
var<workgroup> exchanged: array<array<f32, invocations>, taps_z>;

fn column_of_c(n: u32) -> u32 {
  return place_of_c(n);
}

fn column_of_further(n: u32, strides: vec4<u32>) -> u32 {
  return place_of_further(n, strides);
}

// A group of positions in an image of y.
struct Group {
  y: y_t,
  count: u32,      // of positions that exist
  at: vec3<i32>,   // where tap 0 meets x
  image: u32,      // where that image of x lies
}

// Adds the products with a line of taps.
fn add_line(given: Line, group: Group, first_tap: Gathered) -> Line {
  let at = group.at + first_tap.at;
  if (any(bitcast<vec2<u32>>(at.xy) >= p.b_sizes.xy)) {
    return given;
  }
  let line = group.image + first_tap.offset + u32(at.x) * p.b_strides.x + u32(at.y) * p.b_strides.y;
  let met = elements_met(line, at.z);
  var sums = given;
  for (var w = 0u; w < positions; w++) {
    for (var tap = 0u; tap < taps_z; tap++) {
      let i = w * step_z + tap;
      // What is missing is not multiplied: zero times infinity would be NaN.
      let exists = w < group.count && bitcast<u32>(at.z + i32(i * p.dilation.z)) < p.b_sizes.z;
      sums[tap] = select(sums[tap], fma(group.y[w], met[i], sums[tap]), exists);
    }
  }
  return sums;
}

// Neighbouring elements of a line of y, of which `count` exist.
fn load_y(line: u32, z: u32, count: u32) -> y_t {
  var y = y_t();
  @if(a_is_bits128 || a_is_bits64) {
    @if(a_is_bits128) let four = from_f32(load_a((line + z) >> 2u));
    @else let four = from_halves(load_a((line + z) >> 2u));
    for (var w = 0u; w < positions; w++) {
      y[w] = four[w];
    }
  }
  @else {
    for (var w = 0u; w < positions; w++) {
      y[w] = load_a(line + (z + min(w, count - 1u)) * p.a_column);
    }
  }
  return y;
}

// Adds up the sums of all invocations, and stores those of the line of taps from column n on.
fn store_line(here: BandedTile, n: u32, sums: Line, t: u32) {
  workgroupBarrier();
  for (var tap = 0u; tap < taps_z; tap++) {
    exchanged[tap][t] = sums[tap];
  }
  for (var step = invocations / 2u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (t < step) {
      for (var tap = 0u; tap < taps_z; tap++) {
        exchanged[tap][t] += exchanged[tap][t + step];
      }
    }
  }
  workgroupBarrier();
  if (t < taps_z && n < p.n) {
    let c = p.c_at + here.c_batch * p.c_batch + here.m0 * p.c_row + column_of_c(n + t);
    store_c(c, epilogue(exchanged[t][0], here.batch, here.m0, n + t));
  }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let here = banded_tile(wid.y * groups.x + wid.x, vec2<u32>(1u, lines_together * taps_z));
  if (here.piece >= p.splits) {
    return;
  }
  // A line beyond the last one repeats it. Its sums are not stored.
  let last = p.n - taps_z;
  let line0 = tap(here.n0);
  @if(!one) let line1 = tap(min(here.n0 + taps_z, last));
  @if(three) let line2 = tap(min(here.n0 + 2u * taps_z, last));
  var sums0 = Line();
  @if(!one) var sums1 = Line();
  @if(three) var sums2 = Line();
  @if(a_is_bits128 || a_is_bits64) let start_of_a = 4u * p.a_at;
  @else let start_of_a = p.a_at;
  let row_of_a = start_of_a + here.batch * p.a_batch + here.m0 * p.a_row;
  let width = p.position_row.x;
  // Pieces of K are whole lines of y.
  let end = here.k_end / width * p.grid_row.x;
  for (var i = here.k_begin / width * p.grid_row.x + t; i < end; i += invocations) {
    let digits = digits_of(i, p.grid_volume, p.grid_plane, p.grid_row);
    let position = vec3<u32>(digits.xy, digits.z * positions);
    let line_of_y = row_of_a + digits.w * p.a_outer +
                    (position.x * p.position_plane.x + position.y * width) * p.a_column;
    let count = width - position.z;
    let group = Group(load_y(line_of_y, position.z, count), count, vec3<i32>(position * p.stride.xyz) - vec3<i32>(p.padding.xyz),
                      start_of_b(here.batch) + digits.w * p.b_image);
    sums0 = add_line(sums0, group, line0);
    @if(!one) sums1 = add_line(sums1, group, line1);
    @if(three) sums2 = add_line(sums2, group, line2);
  }
  store_line(here, here.n0, sums0, t);
  @if(!one) store_line(here, here.n0 + taps_z, sums1, t);
  @if(three) store_line(here, here.n0 + 2u * taps_z, sums2, t);
}
