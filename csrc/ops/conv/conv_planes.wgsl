// conv_few.wgsl for one row of A, with a stride and a dilation of 1 along the width: depthwise convolutions and their gradients
// of the input whose channels lie apart. A line of C has at least four positions. An invocation computes four neighbours along
// the width in one, two or four neighbouring lines. It walks over the lines of B that these meet, and loads what they meet of a
// line once for all. The filters are staged in workgroup memory, for some channels at a time.
//
// @operand c: words {f32, f16, bf16, bits128} // bits128: of float32, where groups of four are aligned and end at the edge
// @operand a: in float
// @operand b: in {f32, f16, bf16, bits128, bits64}
// @operand d: in float optional
// @const   taps_z: u32 in 1..8 // of a line, or of as much of it as is taken at a time
// @const   is_long: bool // a line has more taps
// @const   high: {one, two, four} // lines of an invocation. With more than one, stride and dilation along the height are 1

import package::matmul::product::{Params, acc_t, acc_add, acc_mul, epilogue, epilogue4};
import package::conv::conv_neighbours::{met_t, elements_met, start_of_b};
import package::conv::conv_places::{Params, digits_of, two_levels, place_of_further};
// @require !weight
// @require !input || !strided

struct Params {
  grid_volume: vec4<u32>, // divisors for columns: groups of lines x 4 positions
  grid_plane: vec4<u32>,
  grid_row: vec4<u32>,
  sizes: vec4<u32>,       // of C's images
  taps: vec4<u32>,        // sizes of the weight
  summed: u32,            // channels
  chunk: u32,             // of these, staged at a time
  a_channel: u32,         // stride
}

@if(one) const lines = 1u;
@elif(two) const lines = 2u;
@else const lines = 4u;

const capacity = 512u; // kCapacity of strategies.cpp

var<workgroup> weights: array<f32, capacity>;

// Whether a weight is NaN or infinity. Its product with a missing element, which is loaded as zero, must add nothing.
var<workgroup> has_special: atomic<u32>;

fn stage(batch: u32, first: u32, t: u32) {
  let base = p.a_at + batch * p.a_batch;
  let count = min(p.chunk, p.summed - first) * p.tap_volume.x;
  for (var i = t; i < count; i += 256u) {
    let channel = divide_by(i, p.tap_volume);
    let weight = load_a(base + (first + channel) * p.a_channel + (i - channel * p.tap_volume.x) * p.a_column);
    weights[i] = weight;
    if (!is_finite_f(weight)) {
      atomicStore(&has_special, 1u);
    }
  }
}

// The sums of up to four lines. They have names: the loop over lines of B is not unrolled, and compilers keep no array in
// registers across such a loop.
struct Sums {
  first: vec4<f32>,
  second: vec4<f32>,
  third: vec4<f32>,
  fourth: vec4<f32>,
}

// The elements of a line of B that four neighbours meet with taps_z taps.
const columns_met = taps_z + 3u;

// Which of them the first of the neighbours meets with a tap.
fn place_of_met(tap: u32) -> u32 {
  @if(input) return taps_z - 1u - tap;
  @else return tap;
}

// What a part of a line of taps meets.
struct Met {
  elements: met_t,
  first: i32,    // the place of the first one in the line
  at: u32,       // the number of the first tap in the line of taps
  r: u32,        // the number of the line of B
  weights: u32,  // where those of the first line of taps start
}

// The tap along the height with which line i of C meets line r of B, where r counts the lines that any of the lines of C
// meets. Beyond p.taps.y: none.
fn tap_of_line(r: u32, i: u32) -> u32 {
  @if(input) return r - (lines - 1u - i);
  @else return r - i;
}

// Adds the products of a line of taps to four neighbours. `careful`: what is missing must not be multiplied.
fn add_taps(given: vec4<f32>, met: Met, height: u32, careful: bool) -> vec4<f32> {
  var sums = given;
  for (var tap = 0u; tap < taps_z; tap++) {
    @if(is_long) {
      if (met.at + tap >= p.taps.z) {
        break;
      }
    }
    let i = place_of_met(tap);
    let window = vec4<f32>(met.elements[i], met.elements[i + 1u], met.elements[i + 2u], met.elements[i + 3u]);
    let next = fma(window, vec4<f32>(weights[met.weights + height * p.taps.z + met.at + tap]), sums);
    if (careful) {
      let places = vec4<i32>(met.first + i32(i)) + vec4<i32>(0, 1, 2, 3);
      sums = select(sums, next, bitcast<vec4<u32>>(places) < vec4<u32>(p.b_sizes.z));
    } else {
      sums = next;
    }
  }
  return sums;
}

// To the sums of line i.
fn add_to_line(sums: vec4<f32>, met: Met, i: u32) -> vec4<f32> {
  let height = tap_of_line(met.r, i);
  if (height >= p.taps.y) {
    return sums;
  }
  if (atomicLoad(&has_special) != 0u) {
    return add_taps(sums, met, height, true);
  }
  return add_taps(sums, met, height, false);
}

// Adds the products with line r of B, which starts at `line`. z is where the first of four neighbours meets its first tap.
fn add_line(given: Sums, line: u32, z: i32, weights_at: u32, r: u32) -> Sums {
  var sums = given;
  for (var at = 0u; at < p.taps.z; at += taps_z) {
    @if(input) let first = z - i32(at + taps_z - 1u);
    @else let first = z + i32(at);
    let met = Met(elements_met(line, first), first, at, r, weights_at);
    sums.first = add_to_line(sums.first, met, 0u);
    @if(!one) sums.second = add_to_line(sums.second, met, 1u);
    @if(four) sums.third = add_to_line(sums.third, met, 2u);
    @if(four) sums.fourth = add_to_line(sums.fourth, met, 3u);
    @if(!is_long) break;
  }
  return sums;
}

fn column_of_further(n: u32, strides: vec4<u32>) -> u32 {
  return place_of_further(n, strides);
}

// Stores the sums of a line from `at` on. Those beyond the edges are no results.
fn store_line(batch: u32, image: u32, at: vec3<u32>, sums: vec4<f32>) {
  if (at.y >= p.sizes.y) {
    return;
  }
  let position = (at.x * p.sizes.y + at.y) * p.sizes.z + at.z;
  let n = image * p.position_volume.x + position;
  let place = batch * p.c_batch + image * p.c_outer + position * p.c_column;
  @if(c_is_bits128 || owns_c) let fills_words = true;
  @elif(c_is_f32) let fills_words = false;
  @else let fills_words = at.z + 4u <= p.sizes.z && p.c_column == 1u;
  if (fills_words) {
    let c = epilogue4(array<acc_t, 4>(sums.x, sums.y, sums.z, sums.w), batch, 0u, n, vec2<u32>(0u, 1u));
    @if(c_is_bits128) store_c(p.c_at + (place >> 2u), bitcast<vec4<u32>>(vec4<f32>(c[0], c[1], c[2], c[3])));
    @else store4_c(p.c_at + place, c[0], c[1], c[2], c[3]);
    return;
  }
  @if(!(c_is_bits128 || owns_c)) {
    for (var j = 0u; j < min(4u, p.sizes.z - at.z); j++) {
      store_c(p.c_at + place + j * p.c_column, epilogue(sums[j], batch, 0u, n + j));
    }
  }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let id = wid.y * groups.x + wid.x;
  let column = id % p.tiles_n * 256u + t;
  let batch = id / p.tiles_n;
  if (batch >= p.batch) {
    return;
  }
  if (t == 0u) {
    atomicStore(&has_special, 0u);
  }
  let digits = digits_of(column, p.grid_volume, p.grid_plane, p.grid_row);
  let place = vec3<u32>(digits.x, digits.y * lines, digits.z * 4u);
  // Where the walk over B starts: the line that the first line of C meets with tap 0. With form `input` taps run backwards, so
  // that it is the line that the last line of C meets.
  @if(input) let first = vec3<i32>(place + p.padding.xyz) + vec3<i32>(0, i32(lines) - 1, 0);
  @else let first = vec3<i32>(place * p.stride.xyz) - vec3<i32>(p.padding.xyz);
  @if(input) let step = -vec3<i32>(p.dilation.xyz);
  @else let step = vec3<i32>(p.dilation.xyz);
  let sizes = select(vec3<u32>(0u), p.b_sizes.xyz, column < p.n);
  let image = start_of_b(batch) + digits.w * p.b_image;
  var sums = Sums();
  for (var k0 = 0u; k0 < p.summed; k0 += p.chunk) {
    workgroupBarrier();
    stage(batch, k0, t);
    workgroupBarrier();
    // Sums of what is staged are added up apart: one chain over a long K would lose digits.
    var part = Sums();
    for (var k = 0u; k < min(p.chunk, p.summed - k0); k++) {
      for (var depth = 0u; depth < p.taps.x; depth++) {
        let x = bitcast<u32>(first.x + i32(depth) * step.x);
        if (x >= sizes.x) {
          continue;
        }
        let plane = image + (k0 + k) * p.b_channel + x * p.b_strides.x;
        let at = (k * p.taps.x + depth) * p.taps.y * p.taps.z;
        for (var r = 0u; r < p.taps.y + lines - 1u; r++) {
          let y = bitcast<u32>(first.y + i32(r) * step.y);
          if (y < sizes.y) {
            part = add_line(part, plane + y * p.b_strides.y, first.z, at, r);
          }
        }
      }
    }
    sums.first += part.first;
    @if(!one) sums.second += part.second;
    @if(four) sums.third += part.third;
    @if(four) sums.fourth += part.fourth;
  }
  if (column >= p.n) {
    return;
  }
  store_line(batch, digits.w, place, sums.first);
  @if(!one) store_line(batch, digits.w, place + vec3<u32>(0u, 1u, 0u), sums.second);
  @if(four) store_line(batch, digits.w, place + vec3<u32>(0u, 2u, 0u), sums.third);
  @if(four) store_line(batch, digits.w, place + vec3<u32>(0u, 3u, 0u), sums.fourth);
}
