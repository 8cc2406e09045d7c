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
// @const   items: u32 in {1, 2, 4, 8, 16, 32}
// @require !owns_y || items >= 2
// @require centered == has_mean

import package::norm::row::{row_sum};

struct Params {
  rows: u32,
  length: u32,
  lanes_log2: u32,
  groups: u32,   // number of rows after which the weights repeat
  channels: u32, // weights per group
  inner: u32,    // consecutive elements of one weight
  eps: f32,
}

// Neighbouring elements that an invocation stores together.
@if(owns_y) const unit = 2u;
@else const unit = 1u;

// Weight and bias of a channel applied to a normalized value.
fn affine(channel: u32, v: f32) -> f32 {
  var result = v;
  @if(has_weight) result *= load_weight(p.weight_at + channel);
  @if(has_bias) result += load_bias(p.bias_at + channel);
  return result;
}

fn put(i: u32, a: f32, b: f32) {
  @if(owns_y) store2_y(p.y_at + i, a, b);
  @else store_y(p.y_at + i, a);
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

  var values: array<f32, items>;
  var sum = 0.0;
  for (var k = 0u; k < items; k++) {
    let e = (k / unit * lanes + lane) * unit + k % unit;
    if (e < length) {
      values[k] = load_x(p.x_at + base + e);
      sum += values[k];
    }
  }

  var mean = 0.0;
  @if(centered) {
    for (var u = rest_begin; u * unit < length; u += lanes) {
      for (var k = 0u; k < unit; k++) {
        sum += load_x(p.x_at + base + u * unit + k);
      }
    }
    mean = row_sum(sum, lid, 1u, lane, lanes) / f32(p.length);
  }

  // Squared distances from the mean. The mean of squares less the squared mean would lose digits.
  var squares = 0.0;
  for (var k = 0u; k < items; k++) {
    if ((k / unit * lanes + lane) * unit + k % unit < length) {
      values[k] -= mean;
      squares += values[k] * values[k];
    }
  }
  for (var u = rest_begin; u * unit < length; u += lanes) {
    for (var k = 0u; k < unit; k++) {
      let distance = load_x(p.x_at + base + u * unit + k) - mean;
      squares += distance * distance;
    }
  }
  let rstd = rsqrt_f(row_sum(squares, lid, 1u, lane, lanes) / f32(p.length) + p.eps);

  if (lane == 0u && row < p.rows) {
    @if(has_mean) store_mean(p.mean_at + row, mean);
    store_rstd(p.rstd_at + row, rstd);
  }
  for (var k = 0u; k < items; k += unit) {
    let e = (k / unit * lanes + lane) * unit;
    if (e < length) {
      let a = affine(first_channel + e / p.inner, values[k] * rstd);
      let last = k + unit - 1u;
      put(base + e, a, affine(first_channel + (e + unit - 1u) / p.inner, values[last] * rstd));
    }
  }
  for (var u = rest_begin; u * unit < length; u += lanes) {
    let e = u * unit;
    let last = e + unit - 1u;
    let a = affine(first_channel + e / p.inner, (load_x(p.x_at + base + e) - mean) * rstd);
    put(base + e, a,
        affine(first_channel + last / p.inner, (load_x(p.x_at + base + last) - mean) * rstd));
  }
}
