// The gradients of the weights of depthwise convolutions where the channels of images are innermost. An invocation adds up
// one to three lines of taps for a vector of neighbouring channels, four neighbouring positions of y at a time. The positions
// of a piece of K are divided among the invocations of a workgroup with the same channels, and their sums are added at the
// end.
//
// @operand c: out float
// @operand a: in {bits128} // y
// @operand b: in {bits128} // x
// @operand d: in float optional
// @operand e: in float optional
// @operand f: in float optional
// @operand g: in float optional
// @operand h: in float optional
// @operand i: in float optional
// @const   taps_z: u32 in 1..7 // of a line
// @const   together: {one, two, three} // lines
// @const   step_z: u32 in {1, 2} // the convolution's stride along the width
// @const   across: u32 in {1, 2, 4, 8} // invocations with different channels
// @grid groups p.tiles_m * p.tiles_n * p.splits

import package::norm::vectors::{Parts, unpack, kParts};
import package::matmul::product::{Params, acc_t, acc_add, acc_mul, epilogue};
import package::conv::conv_places::{Params, digits_of, two_levels, place_of_c, place_of_further};
// @require weight

struct Params {
  grid_volume: vec4<u32>, // divisors for groups of four positions along a line
  grid_plane: vec4<u32>,
  grid_row: vec4<u32>,
  lines: u32,             // of taps
  vectors: u32,           // of channels
}

const wide = 4u;
const lanes = 4u * kParts; // channels of a vector
const parts = 256u / across; // into which a workgroup divides positions
const columns_met = (wide - 1u) * step_z + taps_z;

@if(one) const lines_together = 1u;
@elif(two) const lines_together = 2u;
@else const lines_together = 3u;

// The sums of a line of taps.
alias Line = array<Parts, taps_z>;

const sums_of_line = taps_z * kParts;
const at_once = 3u; // are exchanged

var<workgroup> exchanged: array<array<vec4<f32>, 256>, at_once>;

fn column_of_c(n: u32) -> u32 {
  return place_of_c(n);
}

fn column_of_further(n: u32, strides: vec4<u32>) -> u32 {
  return place_of_further(n, strides);
}

// The vectors of a line of x that four positions meet.
alias met_t = array<vec4<u32>, columns_met>;

// Adds the products at position w.
fn add_position(given: Line, met: met_t, first_z: i32, w: u32, y: vec4<u32>) -> Line {
  var sums = given;
  let of_y = unpack(y);
  for (var tap = 0u; tap < taps_z; tap++) {
    // What is missing is not multiplied: zero times infinity would be NaN.
    if (bitcast<u32>(first_z + i32(w * step_z + tap)) < p.b_sizes.z) {
      let of_x = unpack(met[w * step_z + tap]);
      for (var part = 0u; part < kParts; part++) {
        sums[tap][part] = fma(of_y[part], of_x[part], sums[tap][part]);
      }
    }
  }
  return sums;
}

// Adds the products of `count` positions, four at most, and a line of x.
fn add_line(given: Line, y: array<vec4<u32>, 4>, count: u32, image: u32, at: u32, first_z: i32) -> Line {
  if (at >= p.b_sizes.y) {
    return given;
  }
  // All are loaded before the first is used. A missing one is loaded from where one exists.
  var met = met_t();
  for (var i = 0u; i < columns_met; i++) {
    let z = u32(clamp(first_z + i32(i), 0, i32(p.b_sizes.z) - 1));
    met[i] = load_b(image + (at * p.b_strides.y + z * p.b_strides.z) / lanes);
  }
  var sums = add_position(given, met, first_z, 0u, y[0]);
  if (count > 1u) {
    sums = add_position(sums, met, first_z, 1u, y[1]);
  }
  if (count > 2u) {
    sums = add_position(sums, met, first_z, 2u, y[2]);
  }
  if (count > 3u) {
    sums = add_position(sums, met, first_z, 3u, y[3]);
  }
  return sums;
}

// Sum i of a line. Selected from all, because compilers keep no array in registers that a loop indexes.
fn sum_of_line(sums: Line, i: u32) -> vec4<f32> {
  var found = sums[0][0];
  for (var tap = 0u; tap < taps_z; tap++) {
    for (var part = 0u; part < kParts; part++) {
      found = select(found, sums[tap][part], i == tap * kParts + part);
    }
  }
  return found;
}

// Where a workgroup's results lie.
struct Place {
  first_vector: u32,
  piece: u32,
}

// Adds up the sums of a line of all invocations with the same channels, and stores them.
fn store_line(place: Place, line: u32, sums: Line, t: u32) {
  for (var first = 0u; first < sums_of_line; first += at_once) {
    workgroupBarrier();
    for (var i = 0u; i < at_once; i++) {
      exchanged[i][t] = sum_of_line(sums, first + i);
    }
    workgroupBarrier();
    for (var i = t; i < at_once * across * 4u; i += 256u) {
      let lane = i / 4u % across;
      let number = first + i / (4u * across);
      let channel = (place.first_vector + lane) * lanes + number % kParts * 4u + i % 4u;
      if (number < sums_of_line && place.first_vector + lane < p.vectors && line < p.lines) {
        var total = 0.0;
        for (var j = lane; j < 256u; j += across) {
          total += exchanged[number - first][j][i % 4u];
        }
        let n = line * taps_z + number / kParts;
        store_c(p.c_at + (place.piece * p.batch + channel) * p.c_batch + n * p.c_column,
                epilogue(total, channel, 0u, n));
      }
    }
  }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let id = wid.y * groups.x + wid.x;
  let vector = id % p.tiles_m * across + t % across;
  let first_line = id / p.tiles_m % p.tiles_n * lines_together;
  let piece = id / p.tiles_m / p.tiles_n;
  if (piece >= p.splits) {
    return;
  }
  // A vector beyond the last one repeats it. Its sums are not stored.
  let found_vector = min(vector, p.vectors - 1u);
  var sums0 = Line();
  @if(!one) var sums1 = Line();
  @if(three) var sums2 = Line();
  let width = p.position_row.x;
  let begin = piece * p.k_piece / width * p.grid_row.x;
  let end = min((piece + 1u) * p.k_piece, p.k) / width * p.grid_row.x;
  for (var group = begin + t / across; group < end; group += parts) {
    let digits = digits_of(group, p.grid_volume, p.grid_plane, p.grid_row);
    let z0 = digits.z * wide;
    let first_z = i32(z0 * step_z) - i32(p.padding.z);
    let line_of_y = two_levels(digits.w * p.position_volume.x + digits.x * p.position_plane.x + digits.y * width,
                               p.position_volume, p.a_outer, p.a_column);
    let image = p.b_at + found_vector + (digits.w * p.b_image + digits.x * p.b_strides.x) / lanes;
    var y = array<vec4<u32>, 4>();
    for (var w = 0u; w < wide; w++) {
      y[w] = load_a(p.a_at + found_vector + (line_of_y + min(z0 + w, width - 1u) * p.a_column) / lanes);
    }
    // Lines of taps beyond the last one are added up, from lines that exist, and not stored.
    let at = digits.y * p.stride.y + first_line - p.padding.y;
    sums0 = add_line(sums0, y, width - z0, image, at, first_z);
    @if(!one) sums1 = add_line(sums1, y, width - z0, image, at + 1u, first_z);
    @if(three) sums2 = add_line(sums2, y, width - z0, image, at + 2u, first_z);
  }
  let place = Place(id % p.tiles_m * across, piece);
  store_line(place, first_line, sums0, t);
  @if(!one) store_line(place, first_line + 1u, sums1, t);
  @if(three) store_line(place, first_line + 2u, sums2, t);
}
