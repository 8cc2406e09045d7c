// The gradient of norm_rows with respect to its input. With g = gradient * weight and h = (x - mean) * rstd it is
// rstd * (g - mean(g) - h * mean(g * h)), all of a row; not centered, x is h / rstd and mean(g) is left out.
//
// @operand y: words float // the gradient of the input
// @operand gradient: in float
// @operand x: in float
// @operand mean: in f32 optional
// @operand rstd: in f32
// @operand weight: in float optional
// @const   centered: bool
// @const   items: u32 in {1, 2, 4, 8, 16}
// @require !owns_y || items >= 2
// @require centered == has_mean

import package::norm::row::{row_sum_of_pairs};

struct Params {
  rows: u32,
  length: u32,
  lanes_log2: u32,
  groups: u32,   // number of rows after which the weights repeat
  channels: u32, // weights per group
  inner: u32,    // consecutive elements of one weight
}

// Neighbouring elements that an invocation stores together.
@if(owns_y) const unit = 2u;
@else const unit = 1u;

// g and h of an element.
fn load(row: u32, e: u32, mean: f32, rstd: f32) -> vec2<f32> {
  let i = row * p.length + e;
  var g = load_gradient(p.gradient_at + i);
  @if(has_weight) g *= load_weight(p.weight_at + row % p.groups * p.channels + e / p.inner);
  return vec2<f32>(g, (load_x(p.x_at + i) - mean) * rstd);
}

fn derivative(v: vec2<f32>, means: vec2<f32>, rstd: f32) -> f32 {
  @if(centered) return rstd * (v.x - means.x - v.y * means.y);
  @else return rstd * (v.x - v.y * means.y);
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
  let rest_begin = items / unit * lanes + lane; // in units
  var mean = 0.0;
  var rstd = 0.0;
  if (row < p.rows) {
    @if(has_mean) mean = load_mean(p.mean_at + row);
    rstd = load_rstd(p.rstd_at + row);
  }

  var values: array<vec2<f32>, items>;
  var sums = vec2<f32>(0.0);
  for (var k = 0u; k < items; k++) {
    let e = (k / unit * lanes + lane) * unit + k % unit;
    if (e < length) {
      values[k] = load(row, e, mean, rstd);
      sums += vec2<f32>(values[k].x, values[k].x * values[k].y);
    }
  }
  for (var u = rest_begin; u * unit < length; u += lanes) {
    for (var k = 0u; k < unit; k++) {
      let v = load(row, u * unit + k, mean, rstd);
      sums += vec2<f32>(v.x, v.x * v.y);
    }
  }
  let means = row_sum_of_pairs(sums, lid, lane, lanes) / f32(p.length);

  for (var k = 0u; k < items; k += unit) {
    let e = (k / unit * lanes + lane) * unit;
    if (e < length) {
      let a = derivative(values[k], means, rstd);
      put(base + e, a, derivative(values[k + unit - 1u], means, rstd));
    }
  }
  for (var u = rest_begin; u * unit < length; u += lanes) {
    let a = load(row, u * unit, mean, rstd);
    let b = load(row, u * unit + unit - 1u, mean, rstd);
    put(base + u * unit, derivative(a, means, rstd), derivative(b, means, rstd));
  }
}
