// Attention of few queries, such as those of a language model that writes one token after the other. A workgroup takes
// `rows` queries that share a head of keys, of all heads that do, and a split of the keys, so that keys and values are
// read once. With more than one split it writes what attention_combine.wgsl puts together.
//
// Blocks of keys are staged in workgroup memory. An invocation then computes scores of one key, and later adds up one
// group of four elements of the values of some of the keys.
//
// @operand seed: in {i64} optional // of dropout
// @operand offset: in {i64} optional
// @const   rows: u32 in {1, 2, 4, 8}

import package::attention::operands::{Draws, draws_of, factors_of};
import package::attention::operands::{Params, q_group, k_group, v_group, score_of};
import package::attention::groups::{from_halves};
@if(has_out) import package::attention::results::{store_group};
import package::attention::decode::{Params, Row, lowest, store_row_group};
// @require has_out == has_lse && has_out != has_parts
// @require has_seed == dropped && has_offset == dropped

struct Params {
  row_blocks: u32,      // of the rows that share a head of keys
  split_keys: u32,      // of each split; a multiple of block
  block: u32,           // keys that are staged at a time, a power of two, at most 64
  pitch: u32,           // groups from one staged key to the next; odd, against bank conflicts
  value_lanes: u32,     // invocations that share a row of values: a power of two
  workgroups: u32,
}

const threads = 128u;
const score_lanes = 16u; // invocations that share a row's scores

var<workgroup> query_part: array<vec4<f32>, 256>; // [row][group]
var<workgroup> key_part: array<vec4<f32>, 576>;   // [key][group]; later sums of values
var<workgroup> weights: array<f32, rows * 64u>;   // [row][key]
var<workgroup> maxima: array<f32, rows * score_lanes>;
var<workgroup> row_state: array<vec2<f32>, rows>; // what a row's sums shrink by; in the end its maximum and its sum

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let id = wid.y * workgroups.x + wid.x;
  if (id >= p.workgroups) {
    return;
  }
  let split = id % p.splits;
  let first_row = id / p.splits % p.row_blocks * rows;
  let key_head = id / p.splits / p.row_blocks % (p.heads / p.group);
  let batch = id / p.splits / p.row_blocks / (p.heads / p.group);
  let row_count = p.group * p.queries; // row r is query r % queries of head r / queries of the group
  let query_groups = (p.dims + 3u) / 4u;
  let value_groups = (p.value_dims + 3u) / 4u;

  for (var i = t; i < rows * query_groups; i += threads) {
    let row = min(first_row + i / query_groups, row_count - 1u);
    query_part[i] = q_group(batch * p.q_strides.x + (key_head * p.group + row / p.queries) * p.q_strides.y +
                            row % p.queries * p.q_strides.z, i % query_groups * 4u);
  }
  let k_at = batch * p.k_strides.x + key_head * p.k_strides.y;
  let v_at = batch * p.v_strides.x + key_head * p.v_strides.y;
  let value_lane = t % p.value_lanes;
  let value_slot = t / p.value_lanes;
  let value_slots = threads / p.value_lanes;

  @if(dropped) let draws = draws_of(load_seed(p.seed_at), load_offset(p.offset_at));
  // Of the row t / score_lanes, in its invocations.
  var maximum = lowest;
  var sum = 0.0;
  var results = array<vec4<f32>, rows>();
  let seen = select(p.keys, min(p.keys, p.queries), causal);
  let end = min(seen, (split + 1u) * p.split_keys);
  for (var first = split * p.split_keys; first < end; first += p.block) {
    for (var i = t; i < p.block * query_groups; i += threads) {
      let key = min(first + i / query_groups, p.keys - 1u);
      key_part[i / query_groups * p.pitch + i % query_groups] =
          k_group(k_at + key * p.k_strides.z, i % query_groups * 4u);
    }
    workgroupBarrier();
    for (var i = t; i < p.block * rows; i += threads) {
      let key = i % p.block;
      let row = i / p.block;
      var products = vec4<f32>();
      for (var g = 0u; g < query_groups; g++) {
        products = fma(query_part[row * query_groups + g], key_part[key * p.pitch + g], products);
      }
      let place = min(first_row + row, row_count - 1u);
      weights[i] = score_of(products.x + products.y + (products.z + products.w), batch,
                            key_head * p.group + place / p.queries, place % p.queries, first + key);
    }
    workgroupBarrier();
    let row = t / score_lanes;
    if (row < rows) {
      var own = lowest;
      for (var i = t % score_lanes; i < p.block; i += score_lanes) {
        own = max_flat_f(own, weights[row * p.block + i]);
      }
      maxima[t] = own;
    }
    workgroupBarrier();
    if (row < rows) {
      let before = maximum;
      for (var i = 0u; i < score_lanes; i++) {
        maximum = max_flat_f(maximum, maxima[row * score_lanes + i]);
      }
      let shrink = exp_falling_f(before - maximum);
      sum *= shrink;
      for (var i = t % score_lanes; i < p.block; i += score_lanes) {
        var weight = exp_falling_f(weights[row * p.block + i] - maximum);
        sum += weight;
        @if(dropped) {
          let place = min(first_row + row, row_count - 1u);
          weight *= factors_of(draws, batch, key_head * p.group + place / p.queries, place % p.queries, first + i)[i % 4u];
        }
        weights[row * p.block + i] = weight;
      }
      if (t % score_lanes == 0u) {
        row_state[row] = vec2<f32>(shrink, 0.0);
      }
    }
    workgroupBarrier();
    for (var r = 0u; r < rows; r++) {
      results[r] *= row_state[r].x;
    }
    if (value_lane < value_groups) {
      let count = min(p.block, end - first);
      for (var i = value_slot; i < count; i += value_slots) {
        let values = v_group(v_at + (first + i) * p.v_strides.z, value_lane * 4u);
        for (var r = 0u; r < rows; r++) {
          results[r] = fma(values, vec4<f32>(weights[r * p.block + i]), results[r]);
        }
      }
    }
    // The next block's keys may be staged: all scores are computed. Its barrier keeps its scores from these weights.
  }

  workgroupBarrier();
  let own_row = t / score_lanes;
  if (own_row < rows) {
    maxima[t] = sum;
  }
  workgroupBarrier();
  if (own_row < rows && t % score_lanes == 0u) {
    var total = 0.0;
    for (var i = 0u; i < score_lanes; i++) {
      total += maxima[t + i];
    }
    row_state[own_row] = vec2<f32>(maximum, total);
  }
  for (var r = 0u; r < rows; r++) {
    workgroupBarrier();
    key_part[t] = results[r];
    workgroupBarrier();
    let row = first_row + r;
    if (row < row_count && value_slot == 0u) {
      var group = vec4<f32>();
      for (var i = 0u; i < value_slots; i++) {
        group += key_part[i * p.value_lanes + value_lane];
      }
      let state = row_state[r];
      if (value_lane < value_groups) {
        store_row_group(Row(batch, key_head * p.group + row / p.queries, row % p.queries, state.x, state.y), split,
                        value_lane * 4u, group);
      }
    }
  }
}
