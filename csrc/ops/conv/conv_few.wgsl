// conv_product.wgsl where a tile would be mostly empty: few rows, such as the three channels of a picture's gradient, or
// short sums, such as those of depthwise convolutions. An invocation computes a column of C for some rows, and walks over
// channels and taps. B's elements are read along its rows, so images whose channels lie apart are fast. The rows of A
// are staged in workgroup memory for some channels at a time.
//
// With form `output` an invocation computes four rows, or eight (`two`), or 16 (`four`). With form `input` it computes four
// rows, and the convolution's stride is 1 (see conv_squares.wgsl for 2). `single`: there is one row in place of four (see
// conv_planes.wgsl for four neighbours of it). `alone`, for software adapters: nothing is staged, because invocations that meet
// at barriers cost more there, and what stores elements is in the text once, because much text compiles slowly.
//
// @operand c: out float akin a
// @operand a: in float
// @operand b: in like a
// @operand d: in like a optional
// @const   single: bool
// @const   two: bool
// @const   four: bool
// @const   alone: bool

import package::matmul::product::{Params, acc_t, acc_add, acc_mul, epilogue};
import package::conv::conv_places::{Params, digits_of, two_levels, place_of_c, place_of_further};
// @require !weight
// @require !four || two
// @require !two || (output && !single)
// @require !input || !strided
// @require !alone || output

struct Params {
  grid_volume: vec4<u32>, // divisors for columns: positions of C
  grid_plane: vec4<u32>,
  grid_row: vec4<u32>,
  sizes: vec4<u32>,       // of C's images
  taps: vec4<u32>,        // sizes of the weight
  summed: u32,            // channels
  chunk: u32,             // of these, staged at a time
  a_channel: u32,         // stride
}

@if(single) alias weights_t = f32;
@else alias weights_t = vec4<f32>;

@if(single) const rows = 1u;
@else const rows = 4u;

// Groups of rows that an invocation computes at one position.
@if(!two) const row_groups = 1u;
@elif(four) const row_groups = 4u;
@else const row_groups = 2u;

const capacity = 512u; // kCapacity of strategies.cpp

@if(!alone) var<workgroup> weights: array<weights_t, capacity>;

fn load_weights(at: u32, m: u32) -> weights_t {
  var found = weights_t();
  @if(single) found = load_a(at + m * p.a_row);
  @else {
    for (var j = 0u; j < rows; j++) {
      if (m + j < p.m) {
        found[j] = load_a(at + (m + j) * p.a_row);
      }
    }
  }
  return found;
}

// Those of element `at` of A and the rows from m on, or those that are staged at `place`.
fn weights_at(place: u32, at: u32, m: u32) -> weights_t {
  @if(!alone) return weights[place];
  @elif(single) return load_a(at + m * p.a_row);
  @else {
    // Rows beyond the edge repeat the last one: they are read, but never stored.
    let row = min(vec4<u32>(m) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.m - 1u)) * p.a_row + at;
    return vec4<f32>(load_a(row.x), load_a(row.y), load_a(row.z), load_a(row.w));
  }
}

@if(!alone)
fn stage(batch: u32, m0: u32, first: u32, t: u32) {
  let base = p.a_at + batch * p.a_batch;
  let count = min(p.chunk, p.summed - first) * p.tap_volume.x * row_groups;
  for (var i = t; i < count; i += 256u) {
    let place = i / row_groups;
    let channel = divide_by(place, p.tap_volume);
    let at = base + (first + channel) * p.a_channel + (place - channel * p.tap_volume.x) * p.a_column;
    weights[i] = load_weights(at, m0 + i % row_groups * rows);
  }
}

fn store_sum(batch: u32, m: u32, n: u32, place: u32, sum: f32) {
  if (m < p.m) {
    store_c(place + m * p.c_row, epilogue(sum, batch, m, n));
  }
}

fn store_sums(batch: u32, m: u32, n: u32, place: u32, sums: weights_t) {
  @if(single) store_sum(batch, m, n, place, sums);
  @elif(alone) {
    for (var j = 0u; j < rows; j++) {
      store_sum(batch, m + j, n, place, sums[j]);
    }
  }
  @else {
    store_sum(batch, m, n, place, sums.x);
    store_sum(batch, m + 1u, n, place, sums.y);
    store_sum(batch, m + 2u, n, place, sums.z);
    store_sum(batch, m + 3u, n, place, sums.w);
  }
}

fn column_of_c(n: u32) -> u32 {
  return place_of_c(n);
}

fn column_of_further(n: u32, strides: vec4<u32>) -> u32 {
  return place_of_further(n, strides);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let id = wid.y * groups.x + wid.x;
  let m0 = id % p.tiles_m * (rows * row_groups);
  let column = id / p.tiles_m % p.tiles_n * 256u + t;
  let batch = id / p.tiles_m / p.tiles_n;
  if (batch >= p.batch) {
    return;
  }

  // Where tap 0 meets B, and how far the next one lies from it.
  let digits = digits_of(column, p.grid_volume, p.grid_plane, p.grid_row);
  @if(input) let first = vec3<i32>(digits.xyz + p.padding.xyz);
  @else let first = vec3<i32>(digits.xyz * p.stride.xyz) - vec3<i32>(p.padding.xyz);
  @if(input) let step = -vec3<i32>(p.dilation.xyz);
  @else let step = vec3<i32>(p.dilation.xyz);
  let sizes = select(vec3<u32>(0u), p.b_sizes.xyz, column < p.n);
  let image = p.b_at + batch * p.b_batch + digits.w * p.b_image;
  var sums0 = weights_t();
  @if(two) var sums1 = weights_t();
  @if(four) var sums2 = weights_t();
  @if(four) var sums3 = weights_t();
  for (var k0 = 0u; k0 < p.summed; k0 += p.chunk) {
    @if(!alone) {
      workgroupBarrier();
      stage(batch, m0, k0, t);
      workgroupBarrier();
    }
    // Sums of what is staged are added up apart: one chain over a long K would lose digits.
    var part0 = weights_t();
    @if(two) var part1 = weights_t();
    @if(four) var part2 = weights_t();
    @if(four) var part3 = weights_t();
    for (var k = 0u; k < min(p.chunk, p.summed - k0); k++) {
      for (var depth = 0u; depth < p.taps.x; depth++) {
        let x = bitcast<u32>(first.x + i32(depth) * step.x);
        for (var height = 0u; height < p.taps.y; height++) {
          let y = bitcast<u32>(first.y + i32(height) * step.y);
          if (x >= sizes.x || y >= sizes.y) {
            continue;
          }
          let line = image + (k0 + k) * p.b_channel + x * p.b_strides.x + y * p.b_strides.y;
          var at = ((k * p.taps.x + depth) * p.taps.y + height) * p.taps.z * row_groups;
          @if(alone) let line_of_a = p.a_at + batch * p.a_batch + (k0 + k) * p.a_channel +
                                     (depth * p.taps.y + height) * p.taps.z * p.a_column;
          for (var width = 0u; width < p.taps.z; width++) {
            let z = bitcast<u32>(first.z + i32(width) * step.z);
            if (z < sizes.z) {
              let b = load_b(line + z * p.b_strides.z);
              @if(alone) let of_a = line_of_a + width * p.a_column;
              @else let of_a = 0u;
              part0 = fma(weights_t(b), weights_at(at, of_a, m0), part0);
              @if(two) part1 = fma(weights_t(b), weights_at(at + 1u, of_a, m0 + rows), part1);
              @if(four) part2 = fma(weights_t(b), weights_at(at + 2u, of_a, m0 + 2u * rows), part2);
              @if(four) part3 = fma(weights_t(b), weights_at(at + 3u, of_a, m0 + 3u * rows), part3);
            }
            at += row_groups;
          }
        }
      }
    }
    sums0 += part0;
    @if(two) sums1 += part1;
    @if(four) sums2 += part2;
    @if(four) sums3 += part3;
  }
  if (column >= p.n) {
    return;
  }
  // Where row 0 of the column lies. It takes divisions, and is found once for all rows.
  let place = p.c_at + batch * p.c_batch + column_of_c(column);
  @if(four && alone) let all_sums = array<weights_t, 4>(sums0, sums1, sums2, sums3);
  @if(four && alone) {
    for (var i = 0u; i < 4u; i++) {
      store_sums(batch, m0 + i * rows, column, place, all_sums[i]);
    }
  }
  @else {
    store_sums(batch, m0, column, place, sums0);
    @if(two) store_sums(batch, m0 + rows, column, place, sums1);
    @if(four) store_sums(batch, m0 + 2u * rows, column, place, sums2);
    @if(four) store_sums(batch, m0 + 3u * rows, column, place, sums3);
  }
}
