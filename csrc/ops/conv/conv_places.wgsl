// What the kernels of convolutions share: the places of taps and positions in B, the operand that is gathered.
// Vectors are (depth, height, width).
//
// @const   form: {output, input, weight}
// @const   strided: bool // the convolution's stride is not 1

import package::matmul::product::{Params};

struct Params {
  // Divisors, which split a flat index of taps or positions: see divide_by.
  tap_volume: vec4<u32>,
  tap_plane: vec4<u32>,
  tap_row: vec4<u32>,
  position_volume: vec4<u32>,
  position_plane: vec4<u32>,
  position_row: vec4<u32>,
  b_strides: vec4<u32>,
  b_sizes: vec4<u32>,
  stride: vec4<u32>,
  padding: vec4<u32>,
  dilation: vec4<u32>,
  channels: vec4<u32>, // of kernels with groups of channels: a divisor, the channels of a tap
  b_image: u32,   // strides of an image and a channel of B
  b_channel: u32,
  a_outer: u32,   // `input`: A's columns are channels (stride a_outer) and taps (stride a_column). `weight`: images and
  c_outer: u32,   // positions likewise. C's columns, where they are positions, have the strides c_outer and c_column.
}

// A kernel tap or a position, scaled to the coordinates of B, and the element offset of its channel or image.
struct Gathered {
  offset: u32,
  at: vec3<i32>,
}

// The digits (depth, height, width, channel or image) of a flat index.
fn digits_of(n: u32, volume: vec4<u32>, plane: vec4<u32>, row: vec4<u32>) -> vec4<u32> {
  let outer = divide_by(n, volume);
  let in_volume = n - outer * volume.x;
  let depth = divide_by(in_volume, plane);
  let in_plane = in_volume - depth * plane.x;
  let height = divide_by(in_plane, row);
  return vec4<u32>(depth, height, in_plane - height * row.x, outer);
}

// The element offset of a flat index n: stride `outer` for n / volume, stride `inner` for the remainder.
fn two_levels(n: u32, volume: vec4<u32>, outer: u32, inner: u32) -> u32 {
  let high = divide_by(n, volume);
  return high * outer + (n - high * volume.x) * inner;
}

fn tap(n: u32) -> Gathered {
  let digits = digits_of(n, p.tap_volume, p.tap_plane, p.tap_row);
  return Gathered(digits.w * p.b_channel, vec3<i32>(digits.xyz * p.dilation.xyz));
}

// The coordinates in x of tap 0 at a position of y. In form `input`, a position of x plus the padding: minus the tap's
// coordinates, this is a position of y times the stride.
fn position(n: u32) -> Gathered {
  let digits = digits_of(n, p.position_volume, p.position_plane, p.position_row);
  @if(input) let at = vec3<i32>(digits.xyz + p.padding.xyz);
  @else let at = vec3<i32>(digits.xyz * p.stride.xyz) - vec3<i32>(p.padding.xyz);
  return Gathered(digits.w * p.b_image, at);
}

// `at` divided by the stride. If some coordinate is not a multiple of its stride: a place outside of the tensor.
fn unstride(at: vec3<i32>) -> vec3<i32> {
  let stride = vec3<i32>(p.stride.xyz);
  let quotient = at / stride;
  return select(vec3<i32>(-1), quotient, all(quotient * stride == at));
}

fn b_at(row: Gathered, column: Gathered) -> vec3<i32> {
  @if(input && strided) return unstride(column.at - row.at);
  @elif(input) return column.at - row.at;
  @else return row.at + column.at;
}

// Negative coordinates are large as unsigned numbers.
fn is_inside(at: vec3<i32>) -> bool {
  return all(bitcast<vec3<u32>>(at) < p.b_sizes.xyz);
}

// Element (k, n) of B: what depends on k, and what depends on n, with the place where B's batch starts.
fn gathered_row(k: u32) -> Gathered {
  @if(weight) return position(k);
  @else return tap(k);
}

fn gathered_column(start: u32, n: u32) -> Gathered {
  @if(weight) let place = tap(n);
  @else let place = position(n);
  return Gathered(start + place.offset, place.at);
}

fn gathered_element(row: Gathered, column: Gathered) -> b_t {
  let at = b_at(row, column);
  if (is_inside(at)) {
    return load_b(row.offset + column.offset + dot(vec3<u32>(at), p.b_strides.xyz));
  }
  return b_t();
}

// A's column k, relative to its row.
fn place_in_a(k: u32) -> u32 {
  @if(input) return two_levels(k, p.tap_volume, p.a_outer, p.a_column);
  @elif(weight) return two_levels(k, p.position_volume, p.a_outer, p.a_column);
  @else return k * p.a_column;
}

// C's column n, relative to its row.
fn place_of_c(n: u32) -> u32 {
  @if(weight) return n * p.c_column;
  @else return two_levels(n, p.position_volume, p.c_outer, p.c_column);
}

// The same for an operand of the epilogue. The last stride is that of an image.
fn place_of_further(n: u32, strides: vec4<u32>) -> u32 {
  @if(weight) return n * strides.z;
  @else return two_levels(n, p.position_volume, strides.w, strides.z);
}
