// Contiguous rows normalized to mean 0 and variance 1 (layer and group normalization), or, not centered, to a
// root mean square of 1. `lanes` invocations share a row and keep `items` elements each in registers; the
// elements of a longer row beyond these are read again.
//
// @operand y: words float
// @operand mean: out f32 optional
// @operand rstd: out f32
// @operand x: in float
// @operand weight: in float optional
// @operand bias: in float optional
// @const   centered: bool
// @const   per_element: bool // each element of a group has a weight of its own
// @const   items: u32 in {1, 2, 4, 8, 16, 32}
// @require !owns_y || items >= 2
// @require centered == has_mean
// @grid invocations p.rows << p.lanes_log2

import package::norm::row::{row_sum};
import package::norm::unit::{unit, unit_t, store_unit, total};

const row_slots = 256u;

struct Params {
  rows: u32,
  length: u32,
  lanes_log2: u32,
  groups: u32,   // number of rows after which the weights repeat
  channels: u32, // weights per group
  inner: u32,    // consecutive elements of one weight
  eps: f32,
}

fn load(i: u32) -> unit_t {
  @if(owns_y) return load2_x(p.x_at + i);
  @else return load_x(p.x_at + i);
}

// One long sum would lose the digits of a large mean, so that of one lane is of distances from the row's first element.
fn from_origin(v: unit_t, origin: f32) -> unit_t {
  @if(alone) return v - origin;
  @else return v;
}

// Weight and bias of element e of a row, and of its neighbour, applied to normalized values.
fn affine(first_channel: u32, e: u32, v: unit_t) -> unit_t {
  var result = v;
  @if(per_element && owns_y) {
    @if(has_weight) result *= load2_weight(p.weight_at + first_channel + e);
    @if(has_bias) result += load2_bias(p.bias_at + first_channel + e);
  }
  @elif(per_element) {
    @if(has_weight) result *= load_weight(p.weight_at + first_channel + e);
    @if(has_bias) result += load_bias(p.bias_at + first_channel + e);
  }
  @else {
    let channel = first_channel + e / p.inner;
    let last = first_channel + (e + unit - 1u) / p.inner;
    @if(has_weight && owns_y) result *= vec2<f32>(load_weight(p.weight_at + channel), load_weight(p.weight_at + last));
    @elif(has_weight) result *= load_weight(p.weight_at + channel);
    @if(has_bias && owns_y) result += vec2<f32>(load_bias(p.bias_at + channel), load_bias(p.bias_at + last));
    @elif(has_bias) result += load_bias(p.bias_at + channel);
  }
  return result;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let lanes = 1u << p.lanes_log2;
  let lane = lid & (lanes - 1u);
  let row = (wid.y * workgroups.x + wid.x) * (256u >> p.lanes_log2) + (lid >> p.lanes_log2);
  let length = select(0u, p.length, row < p.rows);
  let base = row * p.length;
  let first_channel = row % p.groups * p.channels;
  let rest_begin = items / unit * lanes + lane; // in units

  var origin = 0.0;
  @if(alone && centered) {
    if (length > 0u && is_finite_f(load_x(p.x_at + base))) {
      origin = load_x(p.x_at + base);
    }
  }
  var values = array<unit_t, items / unit>();
  var sums = unit_t();
  for (var k = 0u; k < items / unit; k++) {
    let e = (k * lanes + lane) * unit;
    if (e < length) {
      values[k] = load(base + e);
      sums += from_origin(values[k], origin);
    }
  }

  var mean = 0.0;
  @if(centered) {
    for (var u = rest_begin; u * unit < length; u += lanes) {
      sums += from_origin(load(base + u * unit), origin);
    }
    mean = origin + row_sum(total(sums), lid, 1u, lane, lanes) / f32(p.length);
  }

  // Squared distances from the mean. The mean of squares less the squared mean would lose digits.
  var squares = unit_t();
  for (var k = 0u; k < items / unit; k++) {
    if ((k * lanes + lane) * unit < length) {
      values[k] -= mean;
      squares += values[k] * values[k];
    }
  }
  for (var u = rest_begin; u * unit < length; u += lanes) {
    let distance = load(base + u * unit) - mean;
    squares += distance * distance;
  }
  let rstd = rsqrt_f(row_sum(total(squares), lid, 1u, lane, lanes) / f32(p.length) + p.eps);

  if (lane == 0u && row < p.rows) {
    @if(has_mean) store_mean(p.mean_at + row, mean);
    store_rstd(p.rstd_at + row, rstd);
  }
  for (var k = 0u; k < items / unit; k++) {
    let e = (k * lanes + lane) * unit;
    if (e < length) {
      store_unit(base + e, affine(first_channel, e, values[k] * rstd));
    }
  }
  for (var u = rest_begin; u * unit < length; u += lanes) {
    let e = u * unit;
    store_unit(base + e, affine(first_channel, e, (load(base + e) - mean) * rstd));
  }
}
