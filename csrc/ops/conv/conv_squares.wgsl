// The gradient of a convolution with stride 2 for few channels, such as those of a picture, and transposed convolutions with few
// filters. Positions of x are sorted into squares of 2 x 2, or pairs in a row: one in each phase (see conv_groups.wgsl). All of
// the taps of a square meet the same elements of y. An invocation computes up to four rows of A, which are channels of x, at two
// squares that are neighbours along the width: a weight is loaded from workgroup memory once for both, and an element of y once
// for all of them, from a window of a line that moves by an element. p.n counts these twos, of which the last in a line may lie
// beyond the edge. `sliced`: eight invocations share a two, and each adds up every eighth channel of y.
//
// What is missing at the edges is loaded as zero. Its product with a weight that is NaN or infinite would be NaN instead of
// nothing: sums that are NaN are added up again, without what is missing.
//
// The sizes of the weight are constants, so that the loops over taps are written out: with sizes that are known later a 7 x 7
// convolution takes 1.4 times as long, a 4 x 4 one 1.7 times.
//
// @operand c: words float akin a
// @operand a: in float
// @operand b: in like a
// @operand d: in like a optional
// @const   pairs: bool // the stride is 2 along the width only
// @const   sliced: bool
// @const   single: bool // one row
// @const   triple: bool // three rows, else four
// @const   taps_y: u32 in 1..16
// @const   taps_z: u32 in 1..16

import package::matmul::product::{Params, acc_t, acc_add, acc_mul, epilogue};
import package::conv::conv_places::{Params, digits_of, two_levels, unstride, is_inside, place_of_c};
import package::conv::conv_places::{place_of_further};
// @require input && strided
// @require !owns_c
// @require !single || !triple

struct Params {
  grid_volume: vec4<u32>, // divisors for columns: twos of squares
  grid_plane: vec4<u32>,
  grid_row: vec4<u32>,
  sizes: vec4<u32>, // of x
  planes: u32,      // of the weight
  summed: u32,      // channels of y
  chunk: u32,       // of these, staged at a time
  a_channel: u32,   // stride
}

@if(sliced) const slices = 8u;
@else const slices = 1u;

const columns = 128u / slices; // of a workgroup

@if(single) const rows = 1u;
@elif(triple) const rows = 3u;
@else const rows = 4u;

@if(single) alias weights_t = f32;
@elif(triple) alias weights_t = vec3<f32>;
@else alias weights_t = vec4<f32>;

// The sums of two squares in one phase.
@if(single) alias sums_t = vec2<f32>;
@elif(triple) alias sums_t = mat2x3<f32>;
@else alias sums_t = mat2x4<f32>;

const capacity = 512u; // kCapacity of strategies.cpp

// And sums of slices, once the last weights have been used.
var<workgroup> weights: array<weights_t, capacity>;

fn stage(batch: u32, m0: u32, first: u32, t: u32) {
  let base = p.a_at + batch * p.a_batch;
  let count = min(p.chunk, p.summed - first) * p.tap_volume.x;
  for (var i = t; i < count; i += 128u) {
    let channel = divide_by(i, p.tap_volume);
    let at = base + (first + channel) * p.a_channel + (i - channel * p.tap_volume.x) * p.a_column;
    for (var j = 0u; j < rows; j++) {
      var found = 0.0;
      if (m0 + j < p.m) {
        found = load_a(at + (m0 + j) * p.a_row);
      }
      @if(single) weights[i] = found;
      @else weights[i][j] = found;
    }
  }
}

// The element at place z of a line of B, zero beyond its edges.
fn in_line(line: u32, z: i32, size: u32) -> f32 {
  if (bitcast<u32>(z) < size) {
    return load_b(line + bitcast<u32>(z) * p.b_strides.z);
  }
  return 0.0;
}

fn add_tap(sums: sums_t, window: vec2<f32>, weight: weights_t) -> sums_t {
  @if(single) return fma(window, vec2<f32>(weight), sums);
  @else return sums_t(fma(weights_t(window.x), weight, sums[0]), fma(weights_t(window.y), weight, sums[1]));
}

// What all slices have added up, for the first of them.
fn over_slices(sums: sums_t, t: u32) -> sums_t {
  @if(sliced) {
    workgroupBarrier();
    weights[t] = sums[0];
    weights[t + 128u] = sums[1];
    workgroupBarrier();
    var total = sums;
    if (t < columns) {
      for (var i = t + columns; i < 128u; i += columns) {
        total[0] += weights[i];
        total[1] += weights[i + 128u];
      }
    }
    return total;
  }
  @else return sums;
}

// A result, product by product.
fn sum_without_missing(batch: u32, m: u32, image: u32, at: vec3<u32>) -> f32 {
  let of_a = p.a_at + batch * p.a_batch + m * p.a_row;
  let of_b = p.b_at + batch * p.b_batch + image * p.b_image;
  var sum = 0.0;
  for (var tap = 0u; tap < p.tap_volume.x; tap++) {
    let digits = digits_of(tap, p.tap_volume, p.tap_plane, p.tap_row);
    let place = unstride(vec3<i32>(at + p.padding.xyz) - vec3<i32>(digits.xyz * p.dilation.xyz));
    if (is_inside(place)) {
      let first = of_b + dot(vec3<u32>(place), p.b_strides.xyz);
      for (var k = 0u; k < p.summed; k++) {
        sum = fma(load_a(of_a + k * p.a_channel + tap * p.a_column), load_b(first + k * p.b_channel), sum);
      }
    }
  }
  return sum;
}

fn store_sum(batch: u32, m: u32, image: u32, at: vec3<u32>, sum: f32) {
  if (m >= p.m) {
    return;
  }
  let n = image * p.position_volume.x + (at.x * p.sizes.y + at.y) * p.sizes.z + at.z;
  var exact = sum;
  if (is_nan_f(sum)) {
    exact = sum_without_missing(batch, m, image, at);
  }
  store_c(p.c_at + batch * p.c_batch + m * p.c_row + column_of_c(n), epilogue(exact, batch, m, n));
}

// At a position of x, which may lie beyond its edges.
fn store_at(batch: u32, m: u32, image: u32, at: vec3<u32>, sums: weights_t) {
  if (any(at >= p.sizes.xyz)) {
    return;
  }
  @if(single) store_sum(batch, m, image, at, sums);
  @else {
    store_sum(batch, m, image, at, sums.x);
    store_sum(batch, m + 1u, image, at, sums.y);
    store_sum(batch, m + 2u, image, at, sums.z);
    @if(!triple) store_sum(batch, m + 3u, image, at, sums.w);
  }
}

fn store_phase(batch: u32, m: u32, image: u32, at: vec3<u32>, sums: sums_t) {
  store_at(batch, m, image, at, sums[0]);
  store_at(batch, m, image, at + vec3<u32>(0u, 0u, 2u), sums[1]);
}

fn column_of_c(n: u32) -> u32 {
  return place_of_c(n);
}

fn column_of_further(n: u32, strides: vec4<u32>) -> u32 {
  return place_of_further(n, strides);
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let id = wid.y * groups.x + wid.x;
  let m0 = id % p.tiles_m * rows;
  let column = id / p.tiles_m % p.tiles_n * columns + t % columns;
  let batch = id / p.tiles_m / p.tiles_n;
  if (batch >= p.batch) {
    return;
  }
  let digits = digits_of(column, p.grid_volume, p.grid_plane, p.grid_row) * vec4<u32>(1u, 1u, 2u, 1u);
  // Where tap 0 meets B.
  let first = vec3<i32>(digits.xyz + p.padding.xyz / p.stride.xyz);
  let sizes = select(vec3<u32>(0u), p.b_sizes.xyz, column < p.n);
  let image = p.b_at + batch * p.b_batch + digits.w * p.b_image;
  // Lines of the weight that meet the same line of y.
  @if(pairs) const lines = 1u;
  @else const lines = 2u;
  @if(pairs) let step_y = p.dilation.y;
  @else let step_y = 1u;
  // Sums at even and odd positions of even lines, then of odd ones.
  var sums0 = sums_t();
  var sums1 = sums_t();
  @if(!pairs) var sums2 = sums_t();
  @if(!pairs) var sums3 = sums_t();
  for (var k0 = 0u; k0 < p.summed; k0 += p.chunk) {
    workgroupBarrier();
    stage(batch, m0, k0, t);
    workgroupBarrier();
    // Sums of what is staged are added up apart: one chain over a long K would lose digits.
    var part0 = sums_t();
    var part1 = sums_t();
    @if(!pairs) var part2 = sums_t();
    @if(!pairs) var part3 = sums_t();
    for (var k = t / columns; k < min(p.chunk, p.summed - k0); k += slices) {
      for (var depth = 0u; depth < p.planes; depth++) {
        let x = bitcast<u32>(first.x - i32(depth * p.dilation.x));
        if (x >= sizes.x) {
          continue;
        }
        let plane = image + (k0 + k) * p.b_channel + x * p.b_strides.x;
        let plane_of_taps = (k * p.planes + depth) * taps_y * taps_z;
        for (var tap_y = 0u; tap_y < taps_y; tap_y += lines) {
          let y = bitcast<u32>(first.y - i32(tap_y / lines * step_y));
          if (y >= sizes.y) {
            continue;
          }
          let line = plane + y * p.b_strides.y;
          let taps = plane_of_taps + tap_y * taps_z;
          var window = vec2<f32>(in_line(line, first.z + 1, sizes.z), 0.0);
          for (var tap_z = 0u; tap_z < taps_z; tap_z += 2u) {
            let z = first.z - i32(tap_z / 2u);
            window = vec2<f32>(in_line(line, z, sizes.z), window.x);
            let at = taps + tap_z;
            part0 = add_tap(part0, window, weights[at]);
            if (tap_z + 1u < taps_z) {
              part1 = add_tap(part1, window, weights[at + 1u]);
            }
            @if(!pairs) {
              if (tap_y + 1u < taps_y) {
                part2 = add_tap(part2, window, weights[at + taps_z]);
                if (tap_z + 1u < taps_z) {
                  part3 = add_tap(part3, window, weights[at + taps_z + 1u]);
                }
              }
            }
          }
        }
      }
    }
    sums0 += part0;
    sums1 += part1;
    @if(!pairs) sums2 += part2;
    @if(!pairs) sums3 += part3;
  }
  sums0 = over_slices(sums0, t);
  sums1 = over_slices(sums1, t);
  @if(!pairs) sums2 = over_slices(sums2, t);
  @if(!pairs) sums3 = over_slices(sums3, t);
  if (t >= columns || column >= p.n) {
    return;
  }
  let corner = digits.xyz * p.stride.xyz - p.padding.xyz % p.stride.xyz;
  store_phase(batch, m0, digits.w, corner, sums0);
  store_phase(batch, m0, digits.w, corner + vec3<u32>(0u, 0u, 1u), sums1);
  @if(!pairs) store_phase(batch, m0, digits.w, corner + vec3<u32>(0u, 1u, 0u), sums2);
  @if(!pairs) store_phase(batch, m0, digits.w, corner + vec3<u32>(0u, 1u, 1u), sums3);
}
