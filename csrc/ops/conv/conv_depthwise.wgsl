// Depthwise convolutions, and their gradients of the input, where the channels of images are innermost: each channel has a
// filter of its own. An invocation computes a vector of neighbouring channels at four neighbouring positions of a line, or
// of two lines (`two`). It loads the vectors of a line of B that these meet, and adds each to the sums of all positions that
// it reaches. The filters are staged in workgroup memory.
//
// The lines of B that a group of positions meets are numbered from 0 on, and so are the elements of a line (`met`). With form
// `output`, tap t of position h in the group meets number h * step + t. With form `input` it meets number
// (h + odd - t) / step + reach, where the quotient is a whole number, with reach = floor((taps - 1 - odd) / step): the last tap
// of position 0 meets number 0 or none. A group starts at a multiple of the stride.
//
// @operand c: out {bits128}
// @operand a: in float
// @operand b: in {bits128}
// @operand d: in like a optional
// @const   taps_y: u32 in 1..7 // of the weight
// @const   taps_z: u32 in 1..7
// @const   step_y: u32 in {1, 2} // the convolution's stride
// @const   step_z: u32 in {1, 2}
// @const   odd_y: u32 in {0, 1} // the padding modulo the stride
// @const   odd_z: u32 in {0, 1}
// @const   two: bool // lines of positions in place of one
// @const   across: u32 in {1, 2, 4, 8} // invocations with different channels
// @grid groups p.tiles_m * p.tiles_n

import package::norm::vectors::{Parts, unpack, pack, kParts};
import package::matmul::product::{Params, acc_t, acc_add, acc_mul, epilogue};
import package::conv::conv_places::{Params, digits_of, two_levels, place_of_c, place_of_further};
// @require !weight

struct Params {
  grid_volume: vec4<u32>, // divisors for groups of positions
  grid_plane: vec4<u32>,
  grid_row: vec4<u32>,
  sizes: vec4<u32>,       // of C's images
  vectors: u32,           // of channels
}

@if(two) const high = 2u;
@else const high = 1u;
const wide = 4u;
const lanes = 4u * kParts; // channels of a vector
const fours = across * kParts; // groups of four channels of a workgroup

// [tap][group of four channels]
var<workgroup> weights: array<vec4<f32>, taps_y * taps_z * fours>;

// floor((taps - 1 - odd) / step), which is -1 for one tap and odd 1: division of i32 would round to 0.
const reach_y = (i32(taps_y) - 1 - i32(odd_y) + i32(step_y)) / i32(step_y) - 1;
const reach_z = (i32(taps_z) - 1 - i32(odd_z) + i32(step_z)) / i32(step_z) - 1;

// Lines and columns of B that a group of positions meets.
@if(input) const lines_met = reach_y + i32((high - 1u + odd_y) / step_y) + 1;
@else const lines_met = i32((high - 1u) * step_y + taps_y);
@if(input) const columns_met = reach_z + i32((wide - 1u + odd_z) / step_z) + 1;
@else const columns_met = i32((wide - 1u) * step_z + taps_z);

// The tap of position h that meets line r. Outside 0 to taps_y - 1: none does.
fn tap_y(r: i32, h: i32) -> i32 {
  @if(input) return h + i32(odd_y) - i32(step_y) * (r - reach_y);
  @else return r - h * i32(step_y);
}

fn tap_z(i: i32, w: i32) -> i32 {
  @if(input) return w + i32(odd_z) - i32(step_z) * (i - reach_z);
  @else return i - w * i32(step_z);
}

// The place in B of number 0, for a group of positions that starts at `at`.
fn first_met(at: u32, step: u32, padding: u32, reach: i32) -> i32 {
  @if(input) return i32(at / step + padding / step) - reach;
  @else return i32(at * step) - i32(padding);
}

fn stage(first_channel: u32, t: u32) {
  const taps = taps_y * taps_z;
  for (var i = t; i < taps * fours; i += 256u) {
    let tap = i % taps;
    let four = i / taps;
    // Channels beyond the last one repeat it. Their sums are not stored.
    let channel = min(vec4<u32>(first_channel + 4u * four) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.batch - 1u));
    let at = vec4<u32>(p.a_at + tap * p.a_column) + channel * p.a_batch;
    weights[tap * fours + four] = vec4<f32>(load_a(at.x), load_a(at.y), load_a(at.z), load_a(at.w));
  }
}

// The vectors of a line of B that a group of positions meets.
alias met_t = array<vec4<u32>, columns_met>;

// Adds the products at position w of a line.
fn add_position(given: Parts, met: met_t, first_z: i32, first_weight: u32, w: i32) -> Parts {
  var sums = given;
  for (var i = 0; i < columns_met; i++) {
    let tap = tap_z(i, w);
    // What is missing is not multiplied: zero times infinity would be NaN.
    if (tap >= 0 && tap < i32(taps_z) && bitcast<u32>(first_z + i) < p.b_sizes.z) {
      let x = unpack(met[i]);
      for (var part = 0u; part < kParts; part++) {
        sums[part] = fma(weights[first_weight + u32(tap) * fours + part], x[part], sums[part]);
      }
    }
  }
  return sums;
}

// The sums of a line of positions. They have names, because compilers keep no array in registers that a loop indexes.
struct Line {
  first: Parts,
  second: Parts,
  third: Parts,
  fourth: Parts,
}

// Adds the products of a line of taps.
fn add_line(given: Line, met: met_t, first_z: i32, of_taps: i32, lane: u32) -> Line {
  if (of_taps < 0 || of_taps >= i32(taps_y)) {
    return given;
  }
  let first_weight = u32(of_taps) * taps_z * fours + lane * kParts;
  return Line(add_position(given.first, met, first_z, first_weight, 0),
              add_position(given.second, met, first_z, first_weight, 1),
              add_position(given.third, met, first_z, first_weight, 2),
              add_position(given.fourth, met, first_z, first_weight, 3));
}

fn column_of_c(n: u32) -> u32 {
  return place_of_c(n);
}

fn column_of_further(n: u32, strides: vec4<u32>) -> u32 {
  return place_of_further(n, strides);
}

fn store_position(channel: u32, n: u32, sums: Parts) {
  var found = Parts();
  for (var part = 0u; part < kParts; part++) {
    for (var j = 0u; j < 4u; j++) {
      found[part][j] = epilogue(sums[part][j], channel + 4u * part + j, 0u, n);
    }
  }
  store_c(p.c_at + (channel + column_of_c(n)) / lanes, pack(found));
}

// Stores the sums of the positions from `at` on. Those beyond the edge are no results.
fn store_line(channel: u32, image: u32, at: vec3<u32>, sums: Line) {
  if (at.y >= p.sizes.y) {
    return;
  }
  let n = image * p.position_volume.x + (at.x * p.sizes.y + at.y) * p.sizes.z + at.z;
  let count = p.sizes.z - at.z;
  store_position(channel, n, sums.first);
  if (count > 1u) {
    store_position(channel, n + 1u, sums.second);
  }
  if (count > 2u) {
    store_position(channel, n + 2u, sums.third);
  }
  if (count > 3u) {
    store_position(channel, n + 3u, sums.fourth);
  }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let id = wid.y * groups.x + wid.x;
  let block = id % p.tiles_m * across;
  stage(block * lanes, t);
  workgroupBarrier();
  let vector = block + t % across;
  let group = id / p.tiles_m * (256u / across) + t / across;
  if (vector >= p.vectors || group >= p.n) {
    return;
  }
  let digits = digits_of(group, p.grid_volume, p.grid_plane, p.grid_row);
  let y0 = digits.y * high;
  let z0 = digits.z * wide;
  let first_y = first_met(y0, step_y, p.padding.y, reach_y);
  let first_z = first_met(z0, step_z, p.padding.z, reach_z);
  let image = p.b_at + vector + (digits.w * p.b_image + digits.x * p.b_strides.x) / lanes;
  let line_stride = p.b_strides.y / lanes;
  let column_stride = p.b_strides.z / lanes;
  var sums0 = Line();
  @if(two) var sums1 = Line();
  for (var r = 0; r < lines_met; r++) {
    let y = bitcast<u32>(first_y + r);
    if (y >= p.b_sizes.y) {
      continue;
    }
    // All are loaded before the first is used. A missing one is loaded from where one exists.
    var met = met_t();
    for (var i = 0; i < columns_met; i++) {
      let z = u32(clamp(first_z + i, 0, i32(p.b_sizes.z) - 1));
      met[i] = load_b(image + y * line_stride + z * column_stride);
    }
    sums0 = add_line(sums0, met, first_z, tap_y(r, 0), t % across);
    @if(two) sums1 = add_line(sums1, met, first_z, tap_y(r, 1), t % across);
  }
  store_line(vector * lanes, digits.w, vec3<u32>(digits.x, y0, z0), sums0);
  @if(two) store_line(vector * lanes, digits.w, vec3<u32>(digits.x, y0 + 1u, z0), sums1);
}
