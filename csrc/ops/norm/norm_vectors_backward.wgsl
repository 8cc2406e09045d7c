// norm_rows_backward for rows of aligned vectors of 16 bytes, which have a weight for each element, or none.
// `lanes` invocations share a row. Each keeps up to `items` vectors of both inputs in registers, as they are in
// memory. A workgroup handles as many rows at once as its invocations allow, in p.steps steps. It can also sum
// the gradients of weight and bias over these steps: one row of sums for each row that it handles at once.
//
// @operand y: out {bits128} // the gradient of the input
// @operand weight_sums: out {bits128} optional // of f32
// @operand bias_sums: out {bits128} optional // of f32
// @operand gradient: in {bits128}
// @operand x: in {bits128}
// @operand mean: in f32 optional
// @operand rstd: in f32
// @operand weight: in {bits128} optional
// @const   centered: bool
// @const   items: u32 in {1, 2, 4}
// @const   row_slots: u32 in {256, 512} // invocations of a workgroup
// @require centered == has_mean
// @grid groups p.workgroups

import package::norm::row::{row_sum_of_pairs};
import package::norm::vectors::{kParts, Parts, unpack, pack, total};

struct Params {
  rows: u32,
  vectors: u32,    // of a row, at most items * lanes
  lanes_log2: u32,
  groups: u32,     // number of rows after which the weights repeat; 1 with sums
  workgroups: u32, // that have rows
  steps: u32,      // rows that an invocation takes one after another
}

// Where all rows have the same weights, an invocation keeps its share of them in registers.
@if(has_weight && (has_weight_sums || has_bias_sums)) var<private> weights: array<vec4<u32>, items>;

fn keep_weights(lane: u32, lanes: u32) {
  @if(has_weight && (has_weight_sums || has_bias_sums)) {
    for (var k = 0u; k < items; k++) {
      if (k * lanes + lane < p.vectors) {
        weights[k] = load_weight(p.weight_at + k * lanes + lane);
      }
    }
  }
}

// Elements of vector k of an invocation, times the weights.
fn weighted(v: Parts, row: u32, k: u32, lane: u32, lanes: u32) -> Parts {
  var product = v;
  @if(has_weight) {
    @if(has_weight_sums || has_bias_sums) let weight = unpack(weights[k]);
    @else let weight = unpack(load_weight(p.weight_at + row % p.groups * p.vectors + k * lanes + lane));
    for (var j = 0u; j < kParts; j++) {
      product[j] *= weight[j];
    }
  }
  return product;
}

fn normalized(v: vec4<u32>, mean: f32, rstd: f32) -> Parts {
  var h = unpack(v);
  for (var j = 0u; j < kParts; j++) {
    h[j] = (h[j] - mean) * rstd;
  }
  return h;
}

@compute @workgroup_size(row_slots)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let lanes = 1u << p.lanes_log2;
  let lane = lid & (lanes - 1u);
  let at_once = row_slots >> p.lanes_log2; // rows
  let group = wid.y * workgroups.x + wid.x;
  let slot = group * at_once + (lid >> p.lanes_log2);
  let rows = select(0u, p.rows, group < p.workgroups);
  @if(has_weight_sums) var weight_sums = array<Parts, items>();
  @if(has_bias_sums) var bias_sums = array<Parts, items>();
  keep_weights(lane, lanes);

  for (var step = 0u; step < p.steps; step++) {
    let row = step * p.workgroups * at_once + slot;
    let vectors = select(0u, p.vectors, row < rows);
    let base = row * p.vectors + lane;
    var gradient = array<vec4<u32>, items>();
    var x = array<vec4<u32>, items>();
    for (var k = 0u; k < items; k++) {
      if (k * lanes + lane < vectors) {
        gradient[k] = load_gradient(p.gradient_at + base + k * lanes);
        x[k] = load_x(p.x_at + base + k * lanes);
      }
    }
    var mean = 0.0;
    var rstd = 0.0;
    if (row < rows) {
      @if(has_mean) mean = load_mean(p.mean_at + row);
      rstd = load_rstd(p.rstd_at + row);
    }

    var sum_g = vec4<f32>();
    var sum_gh = vec4<f32>();
    for (var k = 0u; k < items; k++) {
      if (k * lanes + lane < vectors) {
        let plain = unpack(gradient[k]);
        let g = weighted(plain, row, k, lane, lanes);
        let h = normalized(x[k], mean, rstd);
        for (var j = 0u; j < kParts; j++) {
          @if(centered) sum_g += g[j];
          sum_gh += g[j] * h[j];
          @if(has_weight_sums) weight_sums[k][j] += plain[j] * h[j];
          @if(has_bias_sums) bias_sums[k][j] += plain[j];
        }
      }
    }
    let sums = vec2<f32>(total(sum_g), total(sum_gh));
    let means = row_sum_of_pairs(sums, lid, lane, lanes) / f32(p.vectors * kParts * 4u);

    for (var k = 0u; k < items; k++) {
      if (k * lanes + lane < vectors) {
        var v = weighted(unpack(gradient[k]), row, k, lane, lanes);
        let h = normalized(x[k], mean, rstd);
        for (var j = 0u; j < kParts; j++) {
          v[j] = rstd * (v[j] - means.x - h[j] * means.y);
        }
        store_y(p.y_at + base + k * lanes, pack(v));
      }
    }
  }

  @if(has_weight_sums || has_bias_sums) {
    for (var k = 0u; k < items; k++) {
      let e = k * lanes + lane;
      if (e < p.vectors && group < p.workgroups) {
        for (var j = 0u; j < kParts; j++) {
          let at = (slot * p.vectors + e) * kParts + j;
          @if(has_weight_sums) store_weight_sums(p.weight_sums_at + at, bitcast<vec4<u32>>(weight_sums[k][j]));
          @if(has_bias_sums) store_bias_sums(p.bias_sums_at + at, bitcast<vec4<u32>>(bias_sums[k][j]));
        }
      }
    }
  }
}
