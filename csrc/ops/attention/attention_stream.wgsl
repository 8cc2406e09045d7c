// attention_decode.wgsl for devices with subgroups, where rows of queries, keys and values are whole groups of 16
// bytes.
//
// `width` lanes of a subgroup, a team, take four or eight keys at a time. A lane holds the same one to four groups of
// each row. It multiplies them with those of all queries, and the team adds the products up so that each lane is left
// with the scores of one key. Weights go back to the team by shuffles. Nothing is staged in workgroup memory, and there
// is no barrier until the keys are through: a team has its own maxima, sums and results.
//
// Keys of the next step are loaded while scores of this one are made into weights, values when the step begins. Steps
// are written out key by key and query by query: under a loop's index, arrays might leave the registers.
//
// @enable  subgroups
// @operand q: in {bits128}
// @operand k: in {bits128}
// @operand v: in {bits128}
// @operand seed: in {i64} optional // of dropout
// @operand offset: in {i64} optional
// @const   halves: bool            // groups of eight elements, else of four float32
// @const   most_rows: {one_row, two_rows, four_rows, eight_rows} // that share a head of keys and a workgroup
// @const   groups: {one_group, two_groups, four_groups} // of a row in a lane
// @const   whole: bool             // the groups of all lanes of a team are those of a row, and not more
// @const   eight_keys: bool        // else four
// @const   width: u32 in {4, 8, 16, 32}
// @const   lanes: u32 in {4, 8, 16, 32} // that neighbour each other in a subgroup for certain
// @const   threads: u32 in {16, 32, 64, 128, 256}
// @require width <= lanes && lanes <= threads && (width != 4 || !eight_keys)
// @require threads * width <= 128 * lanes && (one_group || threads * width <= 64 * lanes)
// @require !four_groups || threads * width <= 32 * lanes

import package::attention::operands::{Draws, draws_of, factors_of};
import package::attention::operands::{Params, score_of};
import package::attention::groups::{from_halves};
@if(has_out) import package::attention::results::{store_group};
import package::attention::decode::{Params, Row, lowest, store_row_group};
// @require has_out == has_lse && has_out != has_parts
// @require has_seed == dropped && has_offset == dropped

struct Params {
  row_blocks: u32, // of the rows that share a head of keys
  split_keys: u32, // of each split; a multiple of a step's
  workgroups: u32,
}

@if(halves) const unit = 8u; // elements of a group
@else const unit = 4u;

@if(one_row) const rows = 1u;
@elif(two_rows) const rows = 2u;
@elif(four_rows) const rows = 4u;
@else const rows = 8u;

@if(one_group) const each = 1u;
@elif(two_groups) const each = 2u;
@else const each = 4u;

@if(eight_keys) const keys = 8u;
@else const keys = 4u;

const step = threads / width * keys; // keys of all teams
const apart = width / keys;          // lanes that end with the same key's scores
const bands = threads / lanes;
const row_groups = width * each * unit / 4u; // groups of four float32

// One number for each of up to four rows. With eight rows there are two of everything.
@if(one_row) alias numbers_t = f32;
@elif(two_rows) alias numbers_t = vec2<f32>;
@else alias numbers_t = vec4<f32>;

@if(one_row)
fn first_of(numbers: numbers_t) -> f32 {
  return numbers;
}
@else
fn first_of(numbers: numbers_t) -> f32 {
  return numbers.x;
}

@if(halves) alias group_t = mat2x4<f32>;
@else alias group_t = vec4<f32>;

alias bits_t = array<vec4<u32>, each>; // what a lane has of a row
alias part_t = array<group_t, each>;
alias places_t = array<u32, each>;

// What a lane has of four rows.
struct Parts {
  a: part_t,
  b: part_t,
  c: part_t,
  d: part_t,
}

struct State {
  maximum: numbers_t, // the same in all lanes of a team
  sum: numbers_t,     // of the weights that the lane had
}

@if(halves)
fn group_from(bits: vec4<u32>) -> group_t {
  return group_t(from_halves(bits.xy), from_halves(bits.zw));
}
@else
fn group_from(bits: vec4<u32>) -> group_t {
  return bitcast<vec4<f32>>(bits);
}

fn add4(a: vec4<f32>, b: vec4<f32>, sum: f32) -> f32 {
  return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

fn add_product(a: group_t, b: group_t, sum: f32) -> f32 {
  @if(halves) return add4(a[1], b[1], add4(a[0], b[0], sum));
  @else return add4(a, b, sum);
}

fn add_scaled(a: group_t, by: f32, sum: group_t) -> group_t {
  @if(halves) return group_t(fma(a[0], vec4<f32>(by), sum[0]), fma(a[1], vec4<f32>(by), sum[1]));
  @else return fma(a, vec4<f32>(by), sum);
}

fn from_lane_apart(group: group_t, distance: u32) -> group_t {
  @if(halves) {
    return group_t(subgroupShuffleXor(group[0], distance), subgroupShuffleXor(group[1], distance));
  }
  @else return subgroupShuffleXor(group, distance);
}

// ---- The same for all groups of a lane

fn part_from(bits: bits_t) -> part_t {
  var part = part_t();
  part[0] = group_from(bits[0]);
  @if(!one_group) part[1] = group_from(bits[1]);
  @if(four_groups) {
    part[2] = group_from(bits[2]);
    part[3] = group_from(bits[3]);
  }
  return part;
}

fn product(a: part_t, b: part_t) -> f32 {
  var sum = add_product(a[0], b[0], 0.0);
  @if(!one_group) sum = add_product(a[1], b[1], sum);
  @if(four_groups) sum = add_product(a[3], b[3], add_product(a[2], b[2], sum));
  return sum;
}

fn add_scaled_part(a: part_t, by: f32, sum: part_t) -> part_t {
  var part = sum;
  part[0] = add_scaled(a[0], by, sum[0]);
  @if(!one_group) part[1] = add_scaled(a[1], by, sum[1]);
  @if(four_groups) {
    part[2] = add_scaled(a[2], by, sum[2]);
    part[3] = add_scaled(a[3], by, sum[3]);
  }
  return part;
}

fn scaled_part(a: part_t, by: f32) -> part_t {
  var part = a;
  part[0] *= by;
  @if(!one_group) part[1] *= by;
  @if(four_groups) {
    part[2] *= by;
    part[3] *= by;
  }
  return part;
}

fn part_apart(a: part_t, distance: u32) -> part_t {
  var part = a;
  part[0] = from_lane_apart(a[0], distance);
  @if(!one_group) part[1] = from_lane_apart(a[1], distance);
  @if(four_groups) {
    part[2] = from_lane_apart(a[2], distance);
    part[3] = from_lane_apart(a[3], distance);
  }
  return part;
}

fn zero_outside(bits: vec4<u32>, inside: bool) -> vec4<u32> {
  @if(whole) return bits;
  @else return select(vec4<u32>(), bits, inside);
}

// Where a lane's groups lie in a row of `count` groups. Those behind its end are the last one.
fn place_of(lane: u32, i: u32, count: u32) -> u32 {
  @if(whole) return lane + i * width;
  @else return min(lane + i * width, count - 1u);
}

fn places_of(lane: u32, count: u32) -> places_t {
  var places = places_t();
  places[0] = place_of(lane, 0u, count);
  @if(!one_group) places[1] = place_of(lane, 1u, count);
  @if(four_groups) {
    places[2] = place_of(lane, 2u, count);
    places[3] = place_of(lane, 3u, count);
  }
  return places;
}

@repeat(x, {k, v})
fn ${x}_bits(row_at: u32, places: places_t) -> bits_t {
  var bits = bits_t();
  bits[0] = load_$x(row_at + places[0]);
  @if(!one_group) bits[1] = load_$x(row_at + places[1]);
  @if(four_groups) {
    bits[2] = load_$x(row_at + places[2]);
    bits[3] = load_$x(row_at + places[3]);
  }
  return bits;
}

// What a lane has of the keys of a step, or of their values. Of four keys the second half stays empty.
struct StepBits {
  a: bits_t,
  b: bits_t,
  c: bits_t,
  d: bits_t,
  e: bits_t,
  f: bits_t,
  g: bits_t,
  h: bits_t,
}

struct StepParts {
  a: part_t,
  b: part_t,
  c: part_t,
  d: part_t,
  e: part_t,
  f: part_t,
  g: part_t,
  h: part_t,
}

// From `key` on, not beyond `last`.
@repeat(x, {k, v})
fn ${x}_step(at: u32, stride: u32, key: u32, last: u32, places: places_t) -> StepBits {
  var bits = StepBits();
  bits.a = ${x}_bits(at + min(key, last) * stride, places);
  bits.b = ${x}_bits(at + min(key + 1u, last) * stride, places);
  bits.c = ${x}_bits(at + min(key + 2u, last) * stride, places);
  bits.d = ${x}_bits(at + min(key + 3u, last) * stride, places);
  @if(eight_keys) {
    bits.e = ${x}_bits(at + min(key + 4u, last) * stride, places);
    bits.f = ${x}_bits(at + min(key + 5u, last) * stride, places);
    bits.g = ${x}_bits(at + min(key + 6u, last) * stride, places);
    bits.h = ${x}_bits(at + min(key + 7u, last) * stride, places);
  }
  return bits;
}

// Queries are zero where a team has more groups than a row, and so must keys be, which may not be numbers.
fn k_part(bits: bits_t, lane: u32) -> part_t {
  let count = p.dims / unit;
  var inside = bits;
  inside[0] = zero_outside(bits[0], lane < count);
  @if(!one_group) inside[1] = zero_outside(bits[1], lane + width < count);
  @if(four_groups) {
    inside[2] = zero_outside(bits[2], lane + 2u * width < count);
    inside[3] = zero_outside(bits[3], lane + 3u * width < count);
  }
  return part_from(inside);
}

fn k_parts(bits: StepBits, lane: u32) -> StepParts {
  var parts = StepParts();
  parts.a = k_part(bits.a, lane);
  parts.b = k_part(bits.b, lane);
  parts.c = k_part(bits.c, lane);
  parts.d = k_part(bits.d, lane);
  @if(eight_keys) {
    parts.e = k_part(bits.e, lane);
    parts.f = k_part(bits.f, lane);
    parts.g = k_part(bits.g, lane);
    parts.h = k_part(bits.h, lane);
  }
  return parts;
}

fn v_parts(bits: StepBits) -> StepParts {
  var parts = StepParts();
  parts.a = part_from(bits.a);
  parts.b = part_from(bits.b);
  parts.c = part_from(bits.c);
  parts.d = part_from(bits.d);
  @if(eight_keys) {
    parts.e = part_from(bits.e);
    parts.f = part_from(bits.f);
    parts.g = part_from(bits.g);
    parts.h = part_from(bits.h);
  }
  return parts;
}

fn kept(bits: bits_t, keep: bool) -> bits_t {
  if (keep) {
    return bits;
  }
  return bits_t();
}

// Without values behind the last key, which may be no numbers.
fn step_up_to(bits: StepBits, key: u32, last: u32) -> StepBits {
  var inside = bits;
  inside.a = kept(bits.a, key <= last);
  inside.b = kept(bits.b, key + 1u <= last);
  inside.c = kept(bits.c, key + 2u <= last);
  inside.d = kept(bits.d, key + 3u <= last);
  @if(eight_keys) {
    inside.e = kept(bits.e, key + 4u <= last);
    inside.f = kept(bits.f, key + 5u <= last);
    inside.g = kept(bits.g, key + 6u <= last);
    inside.h = kept(bits.h, key + 7u <= last);
  }
  return inside;
}

// ---- Rows

// Row r is query r % p.queries of head r / p.queries of the group.
fn head_of(key_head: u32, row: u32) -> u32 {
  return key_head * p.group + row / p.queries;
}

fn q_bits(row_at: u32, place: u32) -> vec4<u32> {
  if (place < p.dims / unit) {
    return load_q(p.q_at + row_at / unit + place);
  }
  return vec4<u32>();
}

fn q_part(batch: u32, key_head: u32, row: u32, lane: u32) -> part_t {
  let at = batch * p.q_strides.x + head_of(key_head, row) * p.q_strides.y + row % p.queries * p.q_strides.z;
  var bits = bits_t();
  bits[0] = q_bits(at, lane);
  @if(!one_group) bits[1] = q_bits(at, lane + width);
  @if(four_groups) {
    bits[2] = q_bits(at, lane + 2u * width);
    bits[3] = q_bits(at, lane + 3u * width);
  }
  return part_from(bits);
}

// Four of them from `first` on. Rows behind the last one are computed as that one, and not stored.
fn q_parts(batch: u32, key_head: u32, first: u32, lane: u32) -> Parts {
  let last = p.group * p.queries - 1u;
  var parts = Parts();
  parts.a = q_part(batch, key_head, min(first, last), lane);
  @if(!one_row) parts.b = q_part(batch, key_head, min(first + 1u, last), lane);
  @if(four_rows || eight_rows) {
    parts.c = q_part(batch, key_head, min(first + 2u, last), lane);
    parts.d = q_part(batch, key_head, min(first + 3u, last), lane);
  }
  return parts;
}

fn products(k: part_t, q: Parts) -> numbers_t {
  @if(one_row) return product(k, q.a);
  @elif(two_rows) return vec2<f32>(product(k, q.a), product(k, q.b));
  @else return vec4<f32>(product(k, q.a), product(k, q.b), product(k, q.c), product(k, q.d));
}

// Half of the lanes go on with `low`, the others with `high`, each with the sum of both sides.
fn halved(low: numbers_t, high: numbers_t, upper: bool, distance: u32) -> numbers_t {
  return select(low, high, upper) + subgroupShuffleXor(select(high, low, upper), distance);
}

// The team's sums of the products of one key: the one that is lane / apart in the step.
@if(eight_keys)
fn products_of(k: StepParts, q: Parts, lane: u32) -> numbers_t {
  let upper = (lane & (4u * apart)) != 0u;
  let ae = halved(products(k.a, q), products(k.e, q), upper, 4u * apart);
  let bf = halved(products(k.b, q), products(k.f, q), upper, 4u * apart);
  let cg = halved(products(k.c, q), products(k.g, q), upper, 4u * apart);
  let dh = halved(products(k.d, q), products(k.h, q), upper, 4u * apart);
  return products_of_four(ae, bf, cg, dh, lane);
}
@else
fn products_of(k: StepParts, q: Parts, lane: u32) -> numbers_t {
  return products_of_four(products(k.a, q), products(k.b, q), products(k.c, q), products(k.d, q), lane);
}

fn products_of_four(a: numbers_t, b: numbers_t, c: numbers_t, d: numbers_t, lane: u32) -> numbers_t {
  let upper = (lane & (2u * apart)) != 0u;
  let ac = halved(a, c, upper, 2u * apart);
  let bd = halved(b, d, upper, 2u * apart);
  return sum_of_same(halved(ac, bd, (lane & apart) != 0u, apart));
}

// Over the lanes that have the same key.
fn sum_of_same(part: numbers_t) -> numbers_t {
  var sum = part;
  if (apart >= 2u) {
    sum += subgroupShuffleXor(sum, 1u);
  }
  if (apart >= 4u) {
    sum += subgroupShuffleXor(sum, 2u);
  }
  if (apart >= 8u) {
    sum += subgroupShuffleXor(sum, 4u);
  }
  return sum;
}

// Over those that have different ones.
fn maximum_of_keys(own: numbers_t) -> numbers_t {
  var largest = max(own, subgroupShuffleXor(own, apart));
  largest = max(largest, subgroupShuffleXor(largest, 2u * apart));
  @if(eight_keys) largest = max(largest, subgroupShuffleXor(largest, 4u * apart));
  return largest;
}

fn sum_of_keys(own: numbers_t) -> numbers_t {
  var sum = own + subgroupShuffleXor(own, apart);
  sum += subgroupShuffleXor(sum, 2u * apart);
  @if(eight_keys) sum += subgroupShuffleXor(sum, 4u * apart);
  return sum;
}

fn score(sum: f32, batch: u32, key_head: u32, row: u32, key: u32, end: u32) -> f32 {
  if (key >= end) {
    return -inf_f();
  }
  let place = min(row, p.group * p.queries - 1u);
  return score_of(sum, batch, head_of(key_head, place), place % p.queries, key);
}

fn scores_of(sums: numbers_t, batch: u32, key_head: u32, first: u32, key: u32, end: u32) -> numbers_t {
  @if(one_row) return score(sums, batch, key_head, first, key, end);
  @elif(two_rows) {
    return vec2<f32>(score(sums.x, batch, key_head, first, key, end),
                     score(sums.y, batch, key_head, first + 1u, key, end));
  }
  @else {
    return vec4<f32>(score(sums.x, batch, key_head, first, key, end),
                     score(sums.y, batch, key_head, first + 1u, key, end),
                     score(sums.z, batch, key_head, first + 2u, key, end),
                     score(sums.w, batch, key_head, first + 3u, key, end));
  }
}

fn weights_of(numbers: numbers_t, maximum: numbers_t) -> numbers_t {
  let less = numbers - maximum;
  @if(one_row) return exp_falling_f(less);
  @elif(two_rows) return vec2<f32>(exp_falling_f(less.x), exp_falling_f(less.y));
  @else {
    return vec4<f32>(exp_falling_f(less.x), exp_falling_f(less.y), exp_falling_f(less.z), exp_falling_f(less.w));
  }
}

@if(dropped)
fn factor(draws: Draws, batch: u32, key_head: u32, row: u32, key: u32) -> f32 {
  let place = min(row, p.group * p.queries - 1u);
  return factors_of(draws, batch, head_of(key_head, place), place % p.queries, key)[key % 4u];
}

@if(dropped)
fn factors(draws: Draws, batch: u32, key_head: u32, first: u32, key: u32) -> numbers_t {
  @if(one_row) return factor(draws, batch, key_head, first, key);
  @elif(two_rows) {
    return vec2<f32>(factor(draws, batch, key_head, first, key), factor(draws, batch, key_head, first + 1u, key));
  }
  @else {
    return vec4<f32>(factor(draws, batch, key_head, first, key), factor(draws, batch, key_head, first + 1u, key),
                     factor(draws, batch, key_head, first + 2u, key), factor(draws, batch, key_head, first + 3u, key));
  }
}

fn scaled_parts(sums: Parts, by: numbers_t) -> Parts {
  var parts = sums;
  parts.a = scaled_part(sums.a, first_of(by));
  @if(!one_row) parts.b = scaled_part(sums.b, by.y);
  @if(four_rows || eight_rows) {
    parts.c = scaled_part(sums.c, by.z);
    parts.d = scaled_part(sums.d, by.w);
  }
  return parts;
}

fn add_values(v: part_t, weights: numbers_t, sums: Parts) -> Parts {
  var parts = sums;
  parts.a = add_scaled_part(v, first_of(weights), sums.a);
  @if(!one_row) parts.b = add_scaled_part(v, weights.y, sums.b);
  @if(four_rows || eight_rows) {
    parts.c = add_scaled_part(v, weights.z, sums.c);
    parts.d = add_scaled_part(v, weights.w, sums.d);
  }
  return parts;
}

// Adds the values of a step. `source` is the lane with the weights of the first key.
fn add_step(v: StepParts, weights: numbers_t, source: u32, sums: Parts) -> Parts {
  var parts = sums;
  parts = add_values(v.a, subgroupShuffle(weights, source), parts);
  parts = add_values(v.b, subgroupShuffle(weights, source + apart), parts);
  parts = add_values(v.c, subgroupShuffle(weights, source + 2u * apart), parts);
  parts = add_values(v.d, subgroupShuffle(weights, source + 3u * apart), parts);
  @if(eight_keys) {
    parts = add_values(v.e, subgroupShuffle(weights, source + 4u * apart), parts);
    parts = add_values(v.f, subgroupShuffle(weights, source + 5u * apart), parts);
    parts = add_values(v.g, subgroupShuffle(weights, source + 6u * apart), parts);
    parts = add_values(v.h, subgroupShuffle(weights, source + 7u * apart), parts);
  }
  return parts;
}

// What a team's sums shrink by beside those of another team.
fn joining(state: State, distance: u32) -> numbers_t {
  return weights_of(state.maximum, max(state.maximum, subgroupShuffleXor(state.maximum, distance)));
}

fn joined(state: State, own: numbers_t, distance: u32) -> State {
  let sum = state.sum * own;
  return State(max(state.maximum, subgroupShuffleXor(state.maximum, distance)),
               sum + subgroupShuffleXor(sum, distance));
}

fn joined_parts(sums: Parts, own: numbers_t, distance: u32) -> Parts {
  var parts = scaled_parts(sums, own);
  parts.a = add_scaled_part(part_apart(parts.a, distance), 1.0, parts.a);
  @if(!one_row) parts.b = add_scaled_part(part_apart(parts.b, distance), 1.0, parts.b);
  @if(four_rows || eight_rows) {
    parts.c = add_scaled_part(part_apart(parts.c, distance), 1.0, parts.c);
    parts.d = add_scaled_part(part_apart(parts.d, distance), 1.0, parts.d);
  }
  return parts;
}

// ---- Results of the bands, each of as many lanes as a subgroup has for certain

var<workgroup> states: array<vec2<f32>, bands * rows>;                // [band][row]: maximum and sum
var<workgroup> results: array<vec4<f32>, bands * 2u * row_groups>; // [band][one of two rows][group]

fn put_states(at: u32, state: State) {
  states[at] = vec2<f32>(first_of(state.maximum), first_of(state.sum));
  @if(!one_row) states[at + 1u] = vec2<f32>(state.maximum.y, state.sum.y);
  @if(four_rows || eight_rows) {
    states[at + 2u] = vec2<f32>(state.maximum.z, state.sum.z);
    states[at + 3u] = vec2<f32>(state.maximum.w, state.sum.w);
  }
}

fn put_group(group_at: u32, group: group_t) {
  @if(halves) {
    results[2u * group_at] = group[0];
    results[2u * group_at + 1u] = group[1];
  }
  @else results[group_at] = group;
}

// `place` is one of two rows.
fn put_row(band: u32, place: u32, lane: u32, part: part_t) {
  let at = (2u * band + place) * (width * each) + lane;
  put_group(at, part[0]);
  @if(!one_group) put_group(at + width, part[1]);
  @if(four_groups) {
    put_group(at + 2u * width, part[2]);
    put_group(at + 3u * width, part[3]);
  }
}

fn put_two_rows(band: u32, lane: u32, first: part_t, second: part_t) {
  put_row(band, 0u, lane, first);
  @if(!one_row) put_row(band, 1u, lane, second);
}

// Stores rows `first` and first + 1 of the workgroup's.
fn finish_rows(batch: u32, key_head: u32, block: u32, split: u32, first: u32, t: u32) {
  for (var i = t; i < min(rows, 2u) * row_groups; i += threads) {
    let own = first + i / row_groups;
    let d = i % row_groups * 4u;
    let row = block * rows + own;
    if (row < p.group * p.queries && d < p.value_dims) {
      var maximum = lowest;
      for (var b = 0u; b < bands; b++) {
        maximum = max_flat_f(maximum, states[b * rows + own].x);
      }
      var sum = 0.0;
      var group = vec4<f32>();
      for (var b = 0u; b < bands; b++) {
        let state = states[b * rows + own];
        let weight = exp_falling_f(state.x - maximum);
        sum = fma(state.y, weight, sum);
        group = fma(results[b * 2u * row_groups + i], vec4<f32>(weight), group);
      }
      store_row_group(Row(batch, head_of(key_head, row), row % p.queries, maximum, sum), split, d, group);
    }
  }
}

struct Invocation {
  @builtin(subgroup_id) subgroup: u32,
  @builtin(subgroup_size) subgroup_size: u32,
  @builtin(subgroup_invocation_id) subgroup_lane: u32,
}

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>, at: Invocation) {
  let id = wid.y * workgroups.x + wid.x;
  if (id >= p.workgroups) {
    return;
  }
  let t = at.subgroup * at.subgroup_size + at.subgroup_lane;
  let lane = t % width;
  let split = id % p.splits;
  let block = id / p.splits % p.row_blocks;
  let key_head = id / p.splits / p.row_blocks % (p.heads / p.group);
  let batch = id / p.splits / p.row_blocks / (p.heads / p.group);

  let k_first = p.k_at + (batch * p.k_strides.x + key_head * p.k_strides.y) / unit;
  let v_first = p.v_at + (batch * p.v_strides.x + key_head * p.v_strides.y) / unit;
  let k_stride = p.k_strides.z / unit;
  let v_stride = p.v_strides.z / unit;
  let k_places = places_of(lane, p.dims / unit);
  let v_places = places_of(lane, p.value_dims / unit);
  let q = q_parts(batch, key_head, block * rows, lane);
  @if(eight_rows) let q_more = q_parts(batch, key_head, block * rows + 4u, lane);
  @if(dropped) let draws = draws_of(load_seed(p.seed_at), load_offset(p.offset_at));

  let begin = split * p.split_keys;
  let seen = select(p.keys, min(p.keys, p.queries), causal);
  let end = min(seen, begin + p.split_keys);
  let last = end - 1u;
  let team_key = t / width * keys;            // the team's first key of a step
  let own_key = team_key + lane / apart;      // the lane's
  let source = at.subgroup_lane / width * width; // the lane with the team's first key

  var state = State(numbers_t(lowest), numbers_t());
  var sums = Parts();
  @if(eight_rows) var state_more = State(numbers_t(lowest), numbers_t());
  @if(eight_rows) var sums_more = Parts();

  var k = k_step(k_first, k_stride, begin + team_key, last, k_places);
  for (var first = begin; first < end; first += step) {
    let key = first + team_key;
    var v = v_step(v_first, v_stride, key, last, v_places);
    let k_now = k_parts(k, lane);
    let products = products_of(k_now, q, lane);
    @if(eight_rows) let products_more = products_of(k_now, q_more, lane);
    k = k_step(k_first, k_stride, key + step, last, k_places);

    let scores = scores_of(products, batch, key_head, block * rows, first + own_key, end);
    let maximum = max(state.maximum, maximum_of_keys(scores));
    if (any(maximum != state.maximum)) {
      let shrink = weights_of(state.maximum, maximum);
      sums = scaled_parts(sums, shrink);
      state = State(maximum, state.sum * shrink);
    }
    var weights = weights_of(scores, maximum);
    state.sum += weights;
    @if(dropped) weights *= factors(draws, batch, key_head, block * rows, first + own_key);

    @if(eight_rows)
    let scores_more = scores_of(products_more, batch, key_head, block * rows + 4u, first + own_key, end);
    @if(eight_rows) let maximum_more = max(state_more.maximum, maximum_of_keys(scores_more));
    @if(eight_rows)
    if (any(maximum_more != state_more.maximum)) {
      let shrink = weights_of(state_more.maximum, maximum_more);
      sums_more = scaled_parts(sums_more, shrink);
      state_more = State(maximum_more, state_more.sum * shrink);
    }
    @if(eight_rows) var weights_more = weights_of(scores_more, maximum_more);
    @if(eight_rows) state_more.sum += weights_more;
    @if(eight_rows && dropped) {
      weights_more *= factors(draws, batch, key_head, block * rows + 4u, first + own_key);
    }

    if (first + step > end) {
      v = step_up_to(v, key, last);
    }
    let v_now = v_parts(v);
    sums = add_step(v_now, weights, source, sums);
    @if(eight_rows) sums_more = add_step(v_now, weights_more, source, sums_more);
  }

  state.sum = sum_of_keys(state.sum);
  @if(eight_rows) state_more.sum = sum_of_keys(state_more.sum);
  for (var distance = width; distance < lanes; distance *= 2u) {
    let own = joining(state, distance);
    state = joined(state, own, distance);
    sums = joined_parts(sums, own, distance);
    @if(eight_rows) let own_more = joining(state_more, distance);
    @if(eight_rows) state_more = joined(state_more, own_more, distance);
    @if(eight_rows) sums_more = joined_parts(sums_more, own_more, distance);
  }
  let band = t / lanes;
  let puts = t % lanes < width;
  if (t % lanes == 0u) {
    put_states(band * rows, state);
    @if(eight_rows) put_states(band * rows + 4u, state_more);
  }
  if (puts) {
    put_two_rows(band, lane, sums.a, sums.b);
  }
  workgroupBarrier();
  finish_rows(batch, key_head, block, split, 0u, t);
  @if(four_rows || eight_rows) {
    workgroupBarrier();
    if (puts) {
      put_two_rows(band, lane, sums.c, sums.d);
    }
    workgroupBarrier();
    finish_rows(batch, key_head, block, split, 2u, t);
  }
  @if(eight_rows) {
    workgroupBarrier();
    if (puts) {
      put_two_rows(band, lane, sums_more.a, sums_more.b);
    }
    workgroupBarrier();
    finish_rows(batch, key_head, block, split, 4u, t);
    workgroupBarrier();
    if (puts) {
      put_two_rows(band, lane, sums_more.c, sums_more.d);
    }
    workgroupBarrier();
    finish_rows(batch, key_head, block, split, 6u, t);
  }
}
