// The second half of a convolution by winograd.wgsl: the results of each tile from the products at its points, which lie in
// `sums` as [point][row of C][column]. An invocation finishes 4 x 4 elements of a row of C, or in form `weight` the 3 x 3 taps
// of a channel.
//
// An infinity or NaN at a point reaches results that it has no part in, and so does what overflows at a point. Elements that
// are not finite are added up again, product by product, as the other kernels would.
//
// @operand c: out {bits128, f32} // bits128: each line has four results, and is aligned
// @operand a: in {f32}
// @operand b: in {f32}
// @operand d: in {f32} optional
// @operand sums: in {f32}
// @const   rows_inner: bool // rows of C are neighbours in `sums`, else columns
// @const   rolled: bool // loads and stores are in the text once, for software adapters, which compile much text slowly
// @grid groups ceil_div(p.m * p.tiles, p.at_once)

import package::matmul::product::{Params, acc_t, acc_scalar, acc_add, acc_mul, epilogue, epilogue4};
import package::conv::conv_places::{Params, Gathered, digits_of, two_levels, tap, position, b_at, is_inside};
import package::conv::conv_places::{place_of_c, place_of_further, gathered_row, gathered_column, gathered_element, place_in_a};
import package::conv::winograd::{line_t, Square, transposed, four_results, three_results};
// @require !strided

struct Params {
  tiles: u32,          // columns of `sums` that hold results; in form `weight`: channels
  first: u32,          // the number of the first tile
  tiles_of_line: u32,
  tiles_of_image: u32,
  height: u32,         // of C's images
  width: u32,
  sums_point: u32,     // strides of `sums`
  sums_row: u32,
  sums_column: u32,
  at_once: u32,        // columns that a workgroup finishes: 64, or 32 channels in form `weight`
  points: u32,         // of each dimension: six
  results: u32,        // of a line: four, or three taps
  factors: array<vec4<f32>, 6>, // of the sums at each point in the results of a line
}

fn column_of_c(n: u32) -> u32 {
  return place_of_c(n);
}

fn column_of_further(n: u32, strides: vec4<u32>) -> u32 {
  return place_of_further(n, strides);
}

@if(!rolled)
fn line_of_sums(at: u32) -> line_t {
  return line_t(load_sums(at), load_sums(at + p.sums_point), load_sums(at + 2u * p.sums_point),
                load_sums(at + 3u * p.sums_point), load_sums(at + 4u * p.sums_point), load_sums(at + 5u * p.sums_point));
}

// An element of A @ B, product by product.
@if(!weight)
fn plain_sum(m: u32, n: u32) -> f32 {
  let row = p.a_at + m * p.a_row;
  let column = gathered_column(p.b_at, n);
  var sum = 0.0;
  // In stretches without a test of the sum, whose loads do not wait for each other.
  for (var k0 = 0u; k0 < p.k && !is_nan_f(sum); k0 += 16u) {
    for (var k = k0; k < min(k0 + 16u, p.k); k++) {
      let place = gathered_row(k);
      if (is_inside(b_at(place, column))) {
        sum = fma(load_a(row + place_in_a(k)), gathered_element(place, column), sum);
      }
    }
  }
  return sum;
}

@if(!weight)
fn checked(value: f32, m: u32, n: u32) -> f32 {
  if (is_finite_f(value)) {
    return value;
  }
  return plain_sum(m, n);
}

fn store_sum(m: u32, n: u32, value: f32) {
  @if(c_is_f32) store_c(p.c_at + m * p.c_row + column_of_c(n), epilogue(value, 0u, m, n));
}

@if(!weight && !rolled)
fn store_element(m: u32, n: u32, value: f32) {
  store_sum(m, n, checked(value, m, n));
}

// So many elements of a line, the first of which is column n of C.
@if(!weight && !rolled)
fn store_line(m: u32, n: u32, count: u32, line: line_t) {
  let first = line[0];
  let fourth = line[1].x;
  @if(c_is_bits128) {
    let sums_of_line = array<acc_t, 4>(checked(first.x, m, n), checked(first.y, m, n + 1u), checked(first.z, m, n + 2u),
                                       checked(fourth, m, n + 3u));
    let c = epilogue4(sums_of_line, 0u, m, n, vec2<u32>(0u, 1u));
    store_c((p.c_at * 4u + m * p.c_row + column_of_c(n)) >> 2u, bitcast<vec4<u32>>(vec4<f32>(c[0], c[1], c[2], c[3])));
  }
  @else {
    store_element(m, n, first.x);
    if (count > 1u) { store_element(m, n + 1u, first.y); }
    if (count > 2u) { store_element(m, n + 2u, first.z); }
    if (count > 3u) { store_element(m, n + 3u, fourth); }
  }
}

// The same in loops. A line's elements behind the edge are not looked at.
@if(!weight && rolled)
fn store_line_rolled(m: u32, n: u32, count: u32, line: vec4<f32>) {
  var values = array<acc_t, 4>(line.x, line.y, line.z, line.w);
  for (var j = 0u; j < min(count, 4u); j++) {
    values[j] = checked(values[j], m, n + j);
    @if(c_is_f32) store_sum(m, n + j, values[j]);
  }
  @if(c_is_bits128) {
    let c = epilogue4(values, 0u, m, n, vec2<u32>(0u, 1u));
    store_c((p.c_at * 4u + m * p.c_row + column_of_c(n)) >> 2u, bitcast<vec4<u32>>(vec4<f32>(c[0], c[1], c[2], c[3])));
  }
}

// The row and column of invocation i.
fn place_of(i: u32) -> vec2<u32> {
  @if(rows_inner) return vec2<u32>(i % p.m, i / p.m);
  @else return vec2<u32>(i / p.tiles, i % p.tiles);
}

@if(!rolled)
fn sums_at(place: vec2<u32>) -> Square {
  let at = p.sums_at + place.x * p.sums_row + place.y * p.sums_column;
  let next = 6u * p.sums_point;
  return Square(line_of_sums(at), line_of_sums(at + next), line_of_sums(at + 2u * next), line_of_sums(at + 3u * next),
                line_of_sums(at + 4u * next), line_of_sums(at + 5u * next));
}

// Of each column of points the results along it. The loops' bounds are parameters, so that no compiler unrolls them.
@if(rolled)
fn columns_at(place: vec2<u32>) -> array<vec4<f32>, 6> {
  let at = p.sums_at + place.x * p.sums_row + place.y * p.sums_column;
  var columns = array<vec4<f32>, 6>();
  for (var x = 0u; x < p.points; x++) {
    var column = vec4<f32>();
    for (var y = 0u; y < p.points; y++) {
      column = fma(p.factors[y], vec4<f32>(load_sums(at + (x * 6u + y) * p.sums_point)), column);
    }
    columns[x] = column;
  }
  return columns;
}

// Line i of the results.
@if(rolled)
fn line_of_columns(columns: ptr<function, array<vec4<f32>, 6>>, i: u32) -> vec4<f32> {
  var line = vec4<f32>();
  for (var x = 0u; x < p.points; x++) {
    line = fma(p.factors[x], vec4<f32>((*columns)[x][i]), line);
  }
  return line;
}

@if(!weight)
fn store_tile(place: vec2<u32>) {
  let tile = p.first + place.y;
  let image = tile / p.tiles_of_image;
  let in_image = tile % p.tiles_of_image;
  let top = in_image / p.tiles_of_line * 4u;
  let left = in_image % p.tiles_of_line * 4u;
  let n = (image * p.height + top) * p.width + left;
  let rows = p.height - top;
  let count = p.width - left;
  @if(rolled) {
    var columns = columns_at(place);
    for (var i = 0u; i < min(rows, p.results); i++) {
      store_line_rolled(place.x, n + i * p.width, count, line_of_columns(&columns, i));
    }
  }
  @else {
    let results = four_results(transposed(four_results(sums_at(place))));
    store_line(place.x, n, count, results.r0);
    if (rows > 1u) { store_line(place.x, n + p.width, count, results.r1); }
    if (rows > 2u) { store_line(place.x, n + 2u * p.width, count, results.r2); }
    if (rows > 3u) { store_line(place.x, n + 3u * p.width, count, results.r3); }
  }
}

// In form `weight` a workgroup finishes the taps of so many channels. They are stored by way of workgroup memory, so that
// neighbours store neighbours.
const taps_of_channel = 9u;

@if(weight) const channels_at_once = 32u;

@if(weight) var<workgroup> staged: array<f32, channels_at_once * taps_of_channel>;

// Whether a channel has a tap that is not finite, and the parts of the invocations, which add it up again together: the sum
// has a term for each position of all images.
@if(weight) var<workgroup> is_special: array<u32, channels_at_once>;

@if(weight) var<workgroup> parts: array<array<f32, taps_of_channel>, 64>;

@if(weight)
fn stage_taps(place: vec2<u32>, t: u32) {
  var special = false;
  @if(rolled) {
    var columns = columns_at(place);
    for (var i = 0u; i < p.results; i++) {
      let line = line_of_columns(&columns, i);
      for (var j = 0u; j < 3u; j++) {
        staged[t * taps_of_channel + 3u * i + j] = line[j];
        special = special || !is_finite_f(line[j]);
      }
    }
  }
  @else {
    let taps = three_results(transposed(three_results(sums_at(place))));
    let values = array<f32, taps_of_channel>(taps.r0[0].x, taps.r0[0].y, taps.r0[0].z, taps.r1[0].x, taps.r1[0].y,
                                             taps.r1[0].z, taps.r2[0].x, taps.r2[0].y, taps.r2[0].z);
    for (var tap = 0u; tap < taps_of_channel; tap++) {
      staged[t * taps_of_channel + tap] = values[tap];
      special = special || !is_finite_f(values[tap]);
    }
  }
  is_special[t] = select(0u, 1u, special);
}

// The taps of staged channel i, product by product.
@if(weight)
fn add_up_again(i: u32, place: vec2<u32>, t: u32) {
  var sums = array<f32, taps_of_channel>();
  for (var k = t; k < p.k; k += 64u) {
    let position = gathered_row(k);
    let a = load_a(p.a_at + place.x * p.a_row + place_in_a(k));
    for (var tap = 0u; tap < taps_of_channel; tap++) {
      let column = Gathered(p.b_at + place.y * p.b_channel, vec3<i32>(0, i32(tap / 3u), i32(tap % 3u)));
      if (is_inside(b_at(position, column))) {
        sums[tap] = fma(a, gathered_element(position, column), sums[tap]);
      }
    }
  }
  parts[t] = sums;
  workgroupBarrier();
  if (t < taps_of_channel) {
    var sum = 0.0;
    for (var j = 0u; j < 64u; j++) {
      sum += parts[j][t];
    }
    staged[i * taps_of_channel + t] = sum;
  }
  workgroupBarrier();
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let workgroup = wid.y * groups.x + wid.x;
  @if(weight) {
    let first = workgroup * channels_at_once;
    let count = p.m * p.tiles;
    if (t < channels_at_once) {
      is_special[t] = 0u;
      if (first + t < count) {
        stage_taps(place_of(first + t), t);
      }
    }
    workgroupBarrier();
    for (var i = 0u; i < channels_at_once; i++) {
      if (workgroupUniformLoad(&is_special[i]) != 0u) {
        add_up_again(i, place_of(first + i), t);
      }
    }
    for (var j = t; j < channels_at_once * taps_of_channel; j += 64u) {
      let i = first + j / taps_of_channel;
      if (i < count) {
        let place = place_of(i);
        store_sum(place.x, place.y * taps_of_channel + j % taps_of_channel, staged[j]);
      }
    }
  }
  @else {
    let i = workgroup * 64u + t;
    if (i < p.m * p.tiles) {
      store_tile(place_of(i));
    }
  }
}
