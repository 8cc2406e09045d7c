// Gathering for kernels with groups of channels, where each step of K lies within one tap (`whole_taps`). All invocations of a
// workgroup then meet the same tap in a step, and the place of an element is a sum of two numbers: one for its column, which is
// computed once, and one for the step. Which taps of a column lie in the image is computed once, too.
//
// A kernel that imports this imports `step_k` and `missing`, too.
//
// @const   whole_taps: bool // the channels of a tap are whole steps of K, and there are at most 30 taps: up to two steps behind the last are asked for
// @require !whole_taps || (b_along_k && !weight)
// @require !whole_taps || phased || !(input && strided)

import package::conv::conv_places::{Params, Gathered, digits_of};
@if(whole_taps && phased) import package::conv::conv_groups::{phase, tap_in_phase};

// Of a column of B.
struct Reach {
  start: u32, // the element of channel 0 that tap 0 meets, even if it does not exist. Sums wrap
  taps: u32,  // a bit for each tap, 1 where what it meets exists
}

// Of a step of K.
struct TapStep {
  channel: u32,      // the first one
  tap: u32,          // the number of the tap
  digits: vec3<u32>, // and its place in the kernel, or in the phase
  offset: u32,       // from `start` of a column to the first element
}

@if(whole_taps)
fn tap_sizes() -> vec3<u32> {
  @if(phased) return phase.taps;
  @else return p.phase_taps.xyz;
}

@if(whole_taps)
fn taps_apart() -> vec3<u32> {
  @if(phased) return phase.apart;
  @else return p.dilation.xyz;
}

// Bit i: tap i of `count` along one dimension meets one of `size` places, if tap 0 meets place `at`.
@if(whole_taps)
fn taps_along(at: i32, apart: u32, count: u32, size: u32) -> u32 {
  var taps = 0u;
  var place = bitcast<u32>(at);
  for (var i = 0u; i < count; i++) {
    taps |= select(0u, 1u << i, place < size);
    @if(input) place -= apart;
    @else place += apart;
  }
  return taps;
}

@if(whole_taps)
fn reach_of(column: Gathered) -> Reach {
  let sizes = tap_sizes();
  let apart = taps_apart();
  let depth = taps_along(column.at.x, apart.x, sizes.x, p.b_sizes.x);
  let height = taps_along(column.at.y, apart.y, sizes.y, p.b_sizes.y);
  let width = taps_along(column.at.z, apart.z, sizes.z, p.b_sizes.z);
  var taps = 0u;
  var row = 0u;
  for (var d = 0u; d < sizes.x; d++) {
    for (var h = 0u; h < sizes.y; h++) {
      taps |= (((depth >> d) & (height >> h) & 1u) * width) << row;
      row += sizes.z;
    }
  }
  return Reach(column.offset + dot(bitcast<vec3<u32>>(column.at), p.b_strides.xyz), taps);
}

@if(whole_taps)
fn step_at(channel: u32, tap: u32, digits: vec3<u32>) -> TapStep {
  let distance = dot(digits * taps_apart(), p.b_strides.xyz);
  @if(input) return TapStep(channel, tap, digits, channel - distance);
  @else return TapStep(channel, tap, digits, channel + distance);
}

// The step of K that starts at k.
@if(whole_taps)
fn tap_step(k: u32) -> TapStep {
  let tap = divide_by(k, p.channels);
  @if(phased) let digits = tap_in_phase(tap);
  @else let digits = digits_of(tap, p.tap_volume, p.tap_plane, p.tap_row).xyz;
  return step_at(k - tap * p.channels.x, tap, digits);
}

// The next one, without divisions.
@if(whole_taps)
fn tap_step_after(step: TapStep) -> TapStep {
  let channel = step.channel + step_k;
  if (channel < p.channels.x) {
    return TapStep(channel, step.tap, step.digits, step.offset + step_k);
  }
  let sizes = tap_sizes();
  var digits = step.digits + vec3<u32>(0u, 0u, 1u);
  if (digits.z == sizes.z) {
    digits = vec3<u32>(digits.x, digits.y + 1u, 0u);
    if (digits.y == sizes.y) {
      digits = vec3<u32>(digits.x + 1u, 0u, 0u);
    }
  }
  return step_at(0u, step.tap + 1u, digits);
}

// What to add to k to get the column of A for the step at k. Without phases that is 0. A phase leaves taps out. Its columns of A
// are neighbours.
@if(whole_taps)
fn weights_of_step(step: TapStep, k: u32) -> u32 {
  @if(phased) {
    let tap = phase.first_tap + step.digits * p.phase_step.xyz;
    return ((tap.x * p.phase_taps.y + tap.y) * p.phase_taps.z + tap.z) * p.channels.x + step.channel - k;
  }
  @else return 0u;
}

// Where element `channel` of a step lies, or `missing`.
@if(whole_taps)
fn place_in_step(column: Reach, step: TapStep, channel: u32) -> u32 {
  return select(missing, column.start + step.offset + channel, ((column.taps >> step.tap) & 1u) != 0u);
}
