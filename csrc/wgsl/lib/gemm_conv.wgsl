// Where a convolution's elements lie, when it is computed as a matrix product.

// A kernel tap or a position, scaled to the input's coordinates: (depth, height, width), and the
// element offset of its channel or image.
struct ConvPlace {
  offset: u32,
  at: vec3<i32>,
}

// n / d for n < 2^31, with divisor = (d, multiplier, shift, unused).
fn divide_by_u(n: u32, divisor: vec4<u32>) -> u32 {
  return (mul_wide_u(n, divisor.y).y + n) >> divisor.z;
}

// The digits (depth, height, width, channel or image) of a flat index, by the numbers of elements
// in a volume, a plane and a row.
fn conv_digits(n: u32, volume: vec4<u32>, plane: vec4<u32>, row: vec4<u32>) -> vec4<u32> {
  let outer = divide_by_u(n, volume);
  let in_volume = n - outer * volume.x;
  let depth = divide_by_u(in_volume, plane);
  let in_plane = in_volume - depth * plane.x;
  let height = divide_by_u(in_plane, row);
  return vec4<u32>(depth, height, in_plane - height * row.x, outer);
}

// A flat index of two levels: the outer one steps by `outer`, the inner one by `inner` elements.
fn two_levels(n: u32, volume: vec4<u32>, outer: u32, inner: u32) -> u32 {
  let high = divide_by_u(n, volume);
  return high * outer + (n - high * volume.x) * inner;
}

// Negative coordinates are large as unsigned numbers.
fn is_inside(at: vec3<i32>, size: vec3<u32>) -> bool {
  return all(bitcast<vec3<u32>>(at) < size);
}

// Coordinates in a tensor that was strided over: meaningful if `at` is a multiple of `stride`,
// else outside.
fn conv_unstride(at: vec3<i32>, stride: vec3<i32>) -> vec3<i32> {
  let quotient = at / stride;
  return select(vec3<i32>(-1), quotient, all(quotient * stride == at));
}
