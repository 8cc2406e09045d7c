// A convolution or one of its gradients as a matrix product, one batch for each group. Each form computes one of
// input x, output y and weight w from the other two. B is the operand that is indexed by a tap and a position together;
// the kernel gathers its elements:
//   output: y = w @ x     A's columns and B's rows are taps, the columns of B and C positions of y in all images
//   input:  x = w @ y     the same with positions of x; also the output of a transposed convolution
//   weight: w = y @ x     A's columns and B's rows are positions of y, the columns of B and C taps
// Vectors are (depth, height, width).
//
// @operand c: words number akin a
// @const   form: {output, input, weight}
// @const   strided: bool // the convolution's stride is not 1
// @const   direct: bool // an invocation for each element of C, as in gemm_direct.wgsl; else tiles, as in gemm.wgsl
// @grid groups ceil_div(p.tiles_m * p.tiles_n * p.batch * p.splits, 1 + 63 * direct)

import package::matmul::gemm::{tile_product};
@if(direct) import package::matmul::gemm_direct::{direct_product};
import package::matmul::product::{Params, acc_t, acc_add, acc_mul, epilogue};
// @require !direct || tile == 8
// @require !direct || !owns_c

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

alias b_row_t = Gathered;

alias b_column_t = Gathered;

// n / d for n < 2^31, with divisor = (d, multiplier, shift, unused).
fn divide_by(n: u32, divisor: vec4<u32>) -> u32 {
  return (mul_wide_u(n, divisor.y).y + n) >> divisor.z;
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

fn b_at(row: b_row_t, column: b_column_t) -> vec3<i32> {
  @if(input && strided) return unstride(column.at - row.at);
  @elif(input) return column.at - row.at;
  @else return row.at + column.at;
}

// Negative coordinates are large as unsigned numbers.
fn is_inside(at: vec3<i32>) -> bool {
  return all(bitcast<vec3<u32>>(at) < p.b_sizes.xyz);
}

fn row_of_b(k: u32) -> b_row_t {
  @if(weight) return position(k);
  @else return tap(k);
}

fn column_of_b(batch: u32, n: u32) -> b_column_t {
  @if(weight) let place = tap(n);
  @else let place = position(n);
  return Gathered(place.offset + p.b_at + batch * p.b_batch, place.at);
}

fn b_exists(row: b_row_t, column: b_column_t) -> bool {
  return is_inside(b_at(row, column));
}

fn b_element(row: b_row_t, column: b_column_t) -> b_t {
  let at = b_at(row, column);
  if (is_inside(at)) {
    return load_b(row.offset + column.offset + dot(vec3<u32>(at), p.b_strides.xyz));
  }
  return b_t();
}

fn column_of_a(k: u32) -> u32 {
  @if(input) return two_levels(k, p.tap_volume, p.a_outer, p.a_column);
  @elif(weight) return two_levels(k, p.position_volume, p.a_outer, p.a_column);
  @else return k * p.a_column;
}

fn column_of_c(n: u32) -> u32 {
  @if(weight) return n * p.c_column;
  @else return two_levels(n, p.position_volume, p.c_outer, p.c_column);
}

// The last stride is that of an image.
fn column_of_further(n: u32, strides: vec4<u32>) -> u32 {
  @if(weight) return n * strides.z;
  @else return two_levels(n, p.position_volume, strides.w, strides.z);
}

// Elements of B in the padding, and those between or beyond the elements of a strided y, are missing: see product.wgsl.
@if(a_is_float || a_is_complex) var<workgroup> not_finite: atomic<u32>;

fn forget_not_finite() {
  @if(a_is_float || a_is_complex) atomicStore(&not_finite, 0u);
}

fn note_not_finite(a: row_t) {
  @if(a_is_float) let finite = is_finite_row(a);
  @elif(a_is_complex) let finite = is_finite_row(a[0]) && is_finite_row(a[1]);
  @if(a_is_float || a_is_complex) {
    if (!finite) {
      atomicStore(&not_finite, 1u);
    }
  }
}

fn is_finite_row(row: vec4<f32>) -> bool {
  return all((bitcast<vec4<u32>>(row) & vec4<u32>(0x7f800000u)) != vec4<u32>(0x7f800000u));
}

fn found_not_finite() -> bool {
  @if(a_is_float || a_is_complex) return atomicLoad(&not_finite) != 0u;
  @else return false;
}

fn row_where(condition: vec4<bool>, yes: row_t, no: row_t) -> row_t {
  @if(a_is_float) return select(no, yes, condition);
  @elif(a_is_complex) return row_t(select(no[0], yes[0], condition), select(no[1], yes[1], condition));
  @else return yes;
}

@compute @workgroup_size(tile * tile)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  @if(direct) direct_product((wid.y * groups.x + wid.x) * 64u + t);
  @else tile_product(wid.y * groups.x + wid.x, t);
}
