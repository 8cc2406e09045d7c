// norm_rows for rows of aligned vectors of 16 bytes, which have a weight for each element, or none. `lanes`
// invocations share a row. Each keeps up to `items` vectors in registers, as they are in memory.
//
// @operand y: out {bits128}
// @operand mean: out f32 optional
// @operand rstd: out f32
// @operand x: in {bits128}
// @operand weight: in {bits128} optional
// @operand bias: in {bits128} optional
// @const   centered: bool
// @const   items: u32 in {1, 2, 4, 8}
// @require centered == has_mean
// @grid invocations p.rows << p.lanes_log2

import package::norm::row::{row_sum};
import package::norm::vectors::{kParts, unpack, pack, total};

const row_slots = 256u;

struct Params {
  rows: u32,
  vectors: u32, // of a row, at most items * lanes
  lanes_log2: u32,
  groups: u32,  // number of rows after which the weights repeat
  eps: f32,
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let lanes = 1u << p.lanes_log2;
  let lane = lid & (lanes - 1u);
  let row = (wid.y * workgroups.x + wid.x) * (256u >> p.lanes_log2) + (lid >> p.lanes_log2);
  let vectors = select(0u, p.vectors, row < p.rows);
  let base = row * p.vectors;
  let weights = row % p.groups * p.vectors;
  let length = f32(p.vectors * kParts * 4u);

  var values = array<vec4<u32>, items>();
  for (var k = 0u; k < items; k++) {
    if (k * lanes + lane < vectors) {
      values[k] = load_x(p.x_at + base + k * lanes + lane);
    }
  }

  var mean = 0.0;
  @if(centered) {
    var sums = vec4<f32>();
    for (var k = 0u; k < items; k++) {
      let v = unpack(values[k]); // zeros behind the end
      for (var j = 0u; j < kParts; j++) {
        sums += v[j];
      }
    }
    mean = row_sum(total(sums), lid, 1u, lane, lanes) / length;
  }

  // Squared distances from the mean. The mean of squares less the squared mean would lose digits.
  var squares = vec4<f32>();
  for (var k = 0u; k < items; k++) {
    if (k * lanes + lane < vectors) {
      let v = unpack(values[k]);
      for (var j = 0u; j < kParts; j++) {
        squares += (v[j] - mean) * (v[j] - mean);
      }
    }
  }
  let rstd = rsqrt_f(row_sum(total(squares), lid, 1u, lane, lanes) / length + p.eps);

  if (lane == 0u && row < p.rows) {
    @if(has_mean) store_mean(p.mean_at + row, mean);
    store_rstd(p.rstd_at + row, rstd);
  }
  for (var k = 0u; k < items; k++) {
    let e = k * lanes + lane;
    if (e < vectors) {
      var v = unpack(values[k]);
      @if(has_weight) let weight = unpack(load_weight(p.weight_at + weights + e));
      @if(has_bias) let bias = unpack(load_bias(p.bias_at + weights + e));
      for (var j = 0u; j < kParts; j++) {
        v[j] = (v[j] - mean) * rstd;
        @if(has_weight) v[j] *= weight[j];
        @if(has_bias) v[j] += bias[j];
      }
      store_y(p.y_at + base + e, pack(v));
    }
  }
}
