// What the kernels with groups of channels share. B's channels are neighbours in memory, and taps are numbered with the
// channels of a tap innermost, so that a group's elements have one place in the image.
//
// Phases of form `input`. Of a position of x, a tap reaches y only where position + padding - tap * dilation is a multiple
// of the stride. So positions are sorted by (position + padding) % stride: a phase. The taps that reach y are the same for
// all of its positions, and follow each other in equal steps. Each phase is a dense product over these taps, for positions
// `stride` apart. Each phase has as many columns as the largest. A column beyond its last position stands for that
// position again: both compute and store the same.
//
// @const   phased: bool // p.splits are phases, K is not cut
// @require !phased || (input && strided)

import package::matmul::product::{Params, BandedTile, banded_place};
import package::conv::conv_places::{Params, Gathered, digits_of, position, b_at, is_inside, two_levels};

struct Params {
  phase_step: vec4<u32>,    // from one tap of a phase to the next: stride / gcd(stride, dilation)
  phase_inverse: vec4<u32>, // of dilation / gcd(stride, dilation), modulo phase_step
  phase_taps: vec4<u32>,    // sizes of the weight
  phase_sizes: vec4<u32>,   // of x
}

const nowhere = vec3<i32>(-0x20000000);

const missing = 0xffffffffu;

struct Phase {
  first_tap: vec3<u32>,
  taps: vec3<u32>,  // how many
  apart: vec3<u32>, // how far apart in y these are
  start: vec3<u32>, // the first position of x
  last: vec3<u32>,  // the number of the last one
  back: vec3<i32>,  // where in y position 0 meets the first tap
  per_plane: f32,   // 1 / taps of a plane, and of a row
  per_row: f32,
}

@if(phased) var<private> phase: Phase;

@if(phased)
fn phase_of(number: u32) -> Phase {
  let stride = p.stride.xyz;
  let step = p.phase_step.xyz;
  let rest = vec3<u32>(number / (stride.y * stride.z), number / stride.z % stride.y, number % stride.z);
  let divisor = stride / step;
  let first = rest / divisor * p.phase_inverse.xyz % step;
  let taps = select(vec3<u32>(0u), (p.phase_taps.xyz + step - 1u - first) / step, rest % divisor == vec3<u32>(0u));
  let padded = (p.padding.xyz + stride - 1u - rest) / stride;
  let start = padded * stride + rest - p.padding.xyz;
  let back = vec3<i32>(padded) - vec3<i32>(first * p.dilation.xyz - rest) / vec3<i32>(stride);
  return Phase(first, taps, p.dilation.xyz / divisor, start, (p.phase_sizes.xyz - 1u - start) / stride, back,
               1.0 / f32(max(taps.y * taps.z, 1u)), 1.0 / f32(max(taps.z, 1u)));
}

// The tile of a workgroup, as banded_tile of product.wgsl finds it. Here a piece is a phase.
@if(phased)
fn tile_in_phase(id: u32, sides: vec2<u32>) -> BandedTile {
  let tiles = p.tiles_m * p.tiles_n;
  let piece = id / tiles / p.batch;
  let batch = id / tiles % p.batch;
  let place = banded_place(id % tiles) * sides;
  let here = phase_of(piece);
  phase = here;
  return BandedTile(batch, batch, piece, place.x, place.y, 0u, here.taps.x * here.taps.y * here.taps.z * p.channels.x);
}

// Tap n of the phase, counted in its steps. The host sees to it that a weight has less than 2^16 taps, so that these
// quotients are exact.
@if(phased)
fn tap_in_phase(n: u32) -> vec3<u32> {
  let depth = u32((f32(n) + 0.5) * phase.per_plane);
  let in_plane = n - depth * phase.taps.y * phase.taps.z;
  let height = u32((f32(in_plane) + 0.5) * phase.per_row);
  return vec3<u32>(depth, height, in_plane - height * phase.taps.z);
}

fn tap_of_channel(n: u32) -> Gathered {
  let tap = divide_by(n, p.channels);
  @if(phased) let at = tap_in_phase(tap) * phase.apart;
  @else let at = digits_of(tap, p.tap_volume, p.tap_plane, p.tap_row).xyz * p.dilation.xyz;
  return Gathered(n - tap * p.channels.x, vec3<i32>(at));
}

// Column k of A, relative to its row.
fn column_of_weight(k: u32) -> u32 {
  @if(phased) {
    let number = divide_by(k, p.channels);
    let tap = phase.first_tap + tap_in_phase(number) * p.phase_step.xyz;
    return ((tap.x * p.phase_taps.y + tap.y) * p.phase_taps.z + tap.z - number) * p.channels.x + k;
  }
  @else return k * p.a_column;
}

fn row_of_groups(k: u32, exists: bool) -> Gathered {
  @if(weight) let place = position(k);
  @else let place = tap_of_channel(k);
  // Form `input` subtracts a row's place from a column's, so that two that are missing must not cancel.
  @if(input) return Gathered(place.offset, select(-nowhere, place.at, exists));
  @else return Gathered(place.offset, select(nowhere, place.at, exists));
}

// The number of column n's position in the phase, and its image.
@if(phased)
fn position_in_phase(n: u32) -> vec4<u32> {
  let digits = digits_of(n, p.position_volume, p.position_plane, p.position_row);
  return vec4<u32>(min(digits.xyz, phase.last), digits.w);
}

// `start` is where the channels of B's batch start.
fn column_of_groups(start: u32, n: u32) -> Gathered {
  @if(phased) let here = position_in_phase(n);
  @if(weight) let place = tap_of_channel(n);
  @elif(phased) let place = Gathered(here.w * p.b_image, vec3<i32>(here.xyz) + phase.back);
  @else let place = position(n);
  return Gathered(start + place.offset, select(nowhere, place.at, n < p.n));
}

// The place of an element, or `missing`.
fn place_in_groups(row: Gathered, column: Gathered) -> u32 {
  @if(phased) let at = column.at - row.at;
  @else let at = b_at(row, column);
  return select(missing, row.offset + column.offset + dot(vec3<u32>(at), p.b_strides.xyz), is_inside(at));
}

// Column n of C or of an operand of the epilogue, with the strides of an image and a position.
fn place_in_image(n: u32, image: u32, position: u32) -> u32 {
  @if(weight) return n * position;
  @elif(phased) {
    let here = position_in_phase(n);
    let at = phase.start + here.xyz * p.stride.xyz;
    return here.w * image + ((at.x * p.phase_sizes.y + at.y) * p.phase_sizes.z + at.z) * position;
  }
  @else return two_levels(n, p.position_volume, image, position);
}
