// conv_product.wgsl for float16 on subgroup matrices, of stride 1 and up to nine taps. The images that a tile of C meets are
// staged once, 16 channels at a time, and serve all taps.
//
// Numbers. Between the lines of an image there are taken to be as many zeros as the padding is wide, and between images as
// many lines of zeros as it is high. The places of all images are numbered in this order, and so are the positions of C. Then
// what a tap meets lies equally far from each position, in numbers: for 16 positions that follow each other, it is a matrix
// in what is staged. The numbers between the lines of C are computed too, but not stored.
//
// A workgroup computes 64 rows of C for so many numbers as it has invocations, a subgroup 64 for 32.
//
// @enable  f16 subgroups chromium_experimental_subgroup_matrix
// @operand c: words {f16, f32, bits128}
// @operand a: in {bits128} // of conv_weights.wgsl
// @operand b: in {bits128} // images whose channels are neighbours, in whole groups of eight
// @operand d: in {f16} optional
// @operand e: in float optional
// @operand f: in float optional
// @operand g: in float optional
// @operand h: in float optional
// @operand i: in float optional
// @const   invocations: u32 in {128, 224, 256}

import package::matmul::joined::{column_in_batch, in_batch};
import package::matmul::gemm_store::{store_group, store_single};
import package::matmul::product::{Params, acc_t, epilogue, epilogue4, BandedTile, banded_place, banded_tile};
import package::conv::conv_places::{Params, Gathered, digits_of, two_levels, tap, place_of_c, place_of_further};
import package::conv::conv_places::{position};
// @require !weight && !strided && !joined

struct Params {
  line: vec4<u32>,   // divisors: the numbers of a line,
  plane: vec4<u32>,  // and of an image
  places: u32,       // numbers of all images
  lead: u32,         // the place that tap 0 meets lies so far before a position (`input`: the last tap),
  reach: u32,        // and that of the last tap so far behind it (`input`: tap 0)
  to_next_line: u32, // from the last tap of a line to the first of the next one
  columns: u32,      // of C in a tile
  taps: u32,
}

const rows = 64u;

const most_taps = 9u;

const block_channels = 16u;

const missing = 0xffffffffu;

// Of a place or a row: two groups of eight channels, and one more against bank conflicts.
const pitch = 3u;

const most_places = invocations / 2u * 3u;

const all_weights = most_taps * rows * 2u; // groups

const weights_start = most_places * pitch;

alias Left = subgroup_matrix_left<f16, 16, 16>;

alias Right = subgroup_matrix_right<f16, 16, 16>;

alias Sum = subgroup_matrix_result<f32, 16, 16>;

// Places, then weights. At the end: 16 rows of sums.
var<workgroup> tile: array<vec4<u32>, weights_start + most_taps * rows * pitch>;

// Of the tile's columns of C: the number, counted from the first one's, and where the column lies in C.
var<workgroup> columns: array<vec2<u32>, invocations>;

var<private> first_column: u32;

fn column_of_c(n: u32) -> u32 {
  return columns[n - first_column].y;
}

fn column_of_further(n: u32, strides: vec4<u32>) -> u32 {
  return place_of_further(n, strides);
}

// Of a position.
fn number_of(n: u32) -> u32 {
  let digits = digits_of(n, p.position_volume, p.position_plane, p.position_row);
  return digits.w * p.plane.x + digits.y * p.line.x + digits.z;
}

// Where the place of this number has its channels, from the first block on, or `missing`.
fn place_of(number: u32, batch: u32) -> u32 {
  let image = divide_by(number, p.plane);
  let in_image = number - image * p.plane.x;
  let line = divide_by(in_image, p.line);
  let column = in_image - line * p.line.x;
  let exists = number < p.places && line < p.b_sizes.y && column < p.b_sizes.z;
  let start = p.b_at * 8u + batch * p.b_batch + image * p.b_image;
  return select(missing, start + line * p.b_strides.y + column * p.b_strides.z, exists);
}

// Which place, or which row of the weights, group g belongs to; each has two groups. Eight neighbouring invocations store at
// once, the groups of four lines. Lines lie three groups apart in workgroup memory, which has eight banks of 16 bytes: lines 0, 2,
// 4 and 6 meet each bank once, and so do lines 1, 3, 5 and 7.
fn line_of_group(g: u32) -> u32 {
  let i = g / 2u;
  return i / 8u * 8u + i % 4u * 2u + i / 4u % 2u;
}

// Group g of the places from number `first` on. Numbers below zero wrap.
fn place_of_group(first: u32, g: u32, batch: u32) -> u32 {
  let line = line_of_group(g);
  let place = place_of(first + line - p.lead, batch);
  return select(missing, place + g % 2u * 8u, place != missing && line < invocations + p.reach);
}

// Group g of the weights.
fn place_of_weights(here: BandedTile, g: u32) -> u32 {
  let line = line_of_group(g);
  let tap = line / rows;
  let m = here.m0 + line % rows;
  let place = p.a_at * 8u + here.batch * p.a_batch + (tap * p.m + m) * block_channels + g % 2u * 8u;
  return select(missing, place, tap < p.taps && m < p.m);
}

// The channels that a piece of K begins and ends with, in blocks.
fn blocks_of(here: BandedTile) -> vec2<u32> {
  let of_block = block_channels * p.taps;
  return vec2<u32>(here.k_begin, here.k_end + of_block - 1u) / of_block;
}

// Beyond the piece of K, where weights are zero, they may be any.
fn load_places(place: u32, block: u32, t: u32) -> vec4<u32> {
  let channel = block * block_channels;
  if (place != missing && channel + t % 2u * 8u < p.channels.x) {
    return load_b((place + channel) >> 3u);
  }
  return vec4<u32>();
}

// Block `block` of channels, if the piece of K has it, which ends before block `end`.
fn load_weights(place: u32, block: u32, end: u32) -> vec4<u32> {
  if (place != missing && block < end) {
    return load_a((place + block * p.taps * p.m * block_channels) >> 3u);
  }
  return vec4<u32>();
}

fn stage_places(g: u32, group: vec4<u32>) {
  let line = line_of_group(g);
  if (line < invocations + p.reach) {
    tile[line * pitch + g % 2u] = group;
  }
}

fn stage_weights(g: u32, group: vec4<u32>) {
  if (g < all_weights) {
    tile[weights_start + line_of_group(g) * pitch + g % 2u] = group;
  }
}

// A tap: its column in the kernel, and how far behind tap 0 it lies, in numbers.
struct Tap {
  column: u32,
  distance: u32,
}

fn after(tap: Tap) -> Tap {
  let ends = tap.column + 1u == p.tap_row.x;
  return Tap(select(tap.column + 1u, 0u, ends), tap.distance + select(p.dilation.z, p.to_next_line, ends));
}

// From the first number that is staged to that which a position meets, less the position's. That of a tap that does not
// exist is any: its weights are zero.
fn offset_of(tap: Tap, number: u32) -> u32 {
  @if(input) let offset = p.reach - tap.distance;
  @else let offset = tap.distance;
  return select(0u, offset, number < p.taps);
}

fn left(row: u32) -> Left {
  return subgroupMatrixLoad<Left, row_major>(&tile, weights_start + row * pitch, pitch);
}

fn right(place: u32) -> Right {
  return subgroupMatrixLoad<Right, col_major>(&tile, place * pitch, pitch);
}

fn half_of(group: vec4<u32>, i: u32) -> f32 {
  return unpack2x16float(group[i / 2u])[i % 2u];
}

// Where NaN and infinity in A met a zero that stands for padding, the sum is NaN: it is added up again.
fn without_missing(sum: f32, here: BandedTile, m: u32, n: u32) -> f32 {
  if (!is_nan_f(sum) || m >= p.m || n >= p.n) {
    return sum;
  }
  let weights = p.a_at * 8u + here.batch * p.a_batch;
  let channels = min(blocks_of(here) * block_channels, vec2<u32>(p.channels.x));
  var exact = 0.0;
  var next = Tap(0u, 0u);
  for (var i = 0u; i < p.taps; i++) {
    let place = place_of(number_of(n) + offset_of(next, i) - p.lead, here.batch);
    next = after(next);
    for (var channel = channels.x; place != missing && channel < channels.y; channel += 8u) {
      let row = (channel / block_channels * p.taps + i) * p.m + m;
      let a = load_a((weights + row * block_channels + channel % block_channels) >> 3u);
      let b = load_b((place + channel) >> 3u);
      for (var j = 0u; j < 8u; j++) {
        exact = fma(half_of(a, j), half_of(b, j), exact);
      }
    }
  }
  return exact;
}

const pitch_of_sums = invocations / 4u + 1u;

fn sum_at(row: u32, column: u32) -> f32 {
  return bitcast<f32>(tile[row * pitch_of_sums + column / 4u][column % 4u]);
}

// Stores 16 rows of sums, from row m of the tile on, by way of workgroup memory.
fn store_rows(s0: Sum, s1: Sum, subgroup: u32, t: u32, here: BandedTile, m: u32) {
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&tile, subgroup * 8u, s0, pitch_of_sums);
  subgroupMatrixStore<row_major>(&tile, subgroup * 8u + 4u, s1, pitch_of_sums);
  workgroupBarrier();
  let count = min(p.columns, p.n - here.n0);
  @if(c_along_m) {
    for (var g = t; g < 4u * count; g += invocations) {
      let row = g % 4u * 4u;
      let column = columns[g / 4u].x;
      store_group(here, here.m0 + m + row, here.n0 + g / 4u,
                  vec4<f32>(sum_at(row, column), sum_at(row + 1u, column), sum_at(row + 2u, column),
                            sum_at(row + 3u, column)));
    }
  }
  @else {
    let groups = (count + 3u) / 4u;
    for (var g = t; g < 16u * groups; g += invocations) {
      let row = g / groups;
      let at = (g - row * groups) * 4u;
      if (at + 4u <= count) {
        store_group(here, here.m0 + m + row, here.n0 + at,
                    vec4<f32>(sum_at(row, columns[at].x), sum_at(row, columns[at + 1u].x),
                              sum_at(row, columns[at + 2u].x), sum_at(row, columns[at + 3u].x)));
      } else {
        for (var i = at; i < count; i++) {
          store_single(here, here.m0 + m + row, here.n0 + i, sum_at(row, columns[i].x));
        }
      }
    }
  }
}

@compute @workgroup_size(invocations)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32, @builtin(subgroup_id) subgroup: u32) {
  let here = banded_tile(wid.y * groups.x + wid.x, vec2<u32>(rows, p.columns));
  if (here.piece >= p.splits) {
    return;
  }
  let first = number_of(here.n0);
  @repeat(i, 3) let place$i = place_of_group(first, t + $i * invocations, here.batch);
  @repeat(i, 9) let weights$i = place_of_weights(here, t + $i * invocations);
  let piece = blocks_of(here);
  @repeat(i, 3) var x$i = load_places(place$i, piece.x, t);
  @repeat(i, 5) var w$i = load_weights(weights$i, piece.x, piece.y);
  @repeat(i, 5..9) var w$i = vec4<u32>();
  if (5u * invocations < all_weights) {
    w5 = load_weights(weights5, piece.x, piece.y);
  }
  if (6u * invocations < all_weights) {
    @repeat(i, 6..9) w$i = load_weights(weights$i, piece.x, piece.y);
  }
  @repeat(i, 4) @repeat(j, 2) var s$i$j = Sum();
  first_column = here.n0;
  // What lies beyond the last column is not stored.
  if (t < p.columns) {
    let n = min(here.n0 + t, p.n - 1u);
    columns[t] = vec2<u32>(number_of(n) - first, place_of_c(n));
  }
  let tap0 = Tap(0u, 0u);
  let tap1 = after(tap0);
  let tap2 = after(tap1);
  let tap3 = after(tap2);
  let tap4 = after(tap3);
  let tap5 = after(tap4);
  let tap6 = after(tap5);
  let tap7 = after(tap6);
  let tap8 = after(tap7);
  let own = subgroup * 32u;
  @repeat(i, 9) let at$i = own + offset_of(tap$i, $iu);
  for (var block = piece.x; block < piece.y; block++) {
    workgroupBarrier();
    @repeat(i, 3) stage_places(t + $i * invocations, x$i);
    @repeat(i, 5) stage_weights(t + $i * invocations, w$i);
    if (5u * invocations < all_weights) {
      stage_weights(t + 5u * invocations, w5);
    }
    if (6u * invocations < all_weights) {
      @repeat(i, 6..9) stage_weights(t + $i * invocations, w$i);
    }
    workgroupBarrier();
    @repeat(i, 3) x$i = load_places(place$i, block + 1u, t);
    @repeat(i, 5) w$i = load_weights(weights$i, block + 1u, piece.y);
    if (5u * invocations < all_weights) {
      w5 = load_weights(weights5, block + 1u, piece.y);
    }
    if (6u * invocations < all_weights) {
      @repeat(i, 6..9) w$i = load_weights(weights$i, block + 1u, piece.y);
    }
    // Taps 0 and 1 always run. Where there is one tap, the weights of tap 1 are zero.
    @repeat(k, 9) if ($k < 2u || $k < p.taps) {
      @repeat(i, 4) let a$i = left(16u * (4u * $k + $i));
      @repeat(j, 2) let b$j = right(at$k + 16u * $j);
      @repeat(i, 4) @repeat(j, 2) s$i$j = subgroupMatrixMultiplyAccumulate(a$i, b$j, s$i$j);
    }
  }
  @repeat(i, 4) store_rows(s$i0, s$i1, subgroup, t, here, 16u * $i);
}
