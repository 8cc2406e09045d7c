// The gradient of norm_rows with respect to its input. With g = gradient * weight and h = (x - mean) * rstd it is
// rstd * (g - mean(g) - h * mean(g * h)), means over the row. If not centered, h = x * rstd and mean(g) is omitted.
//
// @operand y: words float // the gradient of the input
// @operand gradient: in float
// @operand x: in float
// @operand mean: in f32 optional
// @operand rstd: in f32
// @operand weight: in float optional
// @const   centered: bool
// @const   per_element: bool // each element of a group has a weight of its own
// @const   items: u32 in {1, 2, 4, 8, 16, 32}
// @require !owns_y || items >= 2
// @require centered == has_mean
// @grid invocations p.rows << p.lanes_log2

import package::norm::row::{row_sum_of_pairs};
import package::norm::unit::{unit, unit_t, store_unit, total};

const row_slots = 256u;

struct Params {
  rows: u32,
  length: u32,
  lanes_log2: u32,
  groups: u32,   // number of rows after which the weights repeat
  channels: u32, // weights per group
  inner: u32,    // consecutive elements of one weight
}

// g and h of an element, or of two neighbours.
struct Terms {
  g: unit_t,
  h: unit_t,
}

@if(has_weight)
fn weight_of(first_channel: u32, e: u32) -> unit_t {
  @if(per_element && owns_y) return load2_weight(p.weight_at + first_channel + e);
  @elif(per_element) return load_weight(p.weight_at + first_channel + e);
  @elif(owns_y) {
    return vec2<f32>(load_weight(p.weight_at + first_channel + e / p.inner),
                     load_weight(p.weight_at + first_channel + (e + 1u) / p.inner));
  }
  @else return load_weight(p.weight_at + first_channel + e / p.inner);
}

fn load(row: u32, e: u32, mean: f32, rstd: f32) -> Terms {
  let i = row * p.length + e;
  @if(owns_y) var g = load2_gradient(p.gradient_at + i);
  @else var g = load_gradient(p.gradient_at + i);
  @if(has_weight) g *= weight_of(row % p.groups * p.channels, e);
  @if(owns_y) let x = load2_x(p.x_at + i);
  @else let x = load_x(p.x_at + i);
  return Terms(g, (x - mean) * rstd);
}

fn derivative(v: Terms, means: vec2<f32>, rstd: f32) -> unit_t {
  @if(centered) return rstd * (v.g - means.x - v.h * means.y);
  @else return rstd * (v.g - v.h * means.y);
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

  var values = array<Terms, items / unit>();
  var sums = Terms();
  for (var k = 0u; k < items / unit; k++) {
    let e = (k * lanes + lane) * unit;
    if (e < length) {
      let v = load(row, e, mean, rstd);
      values[k] = v;
      sums = Terms(sums.g + v.g, sums.h + v.g * v.h);
    }
  }
  for (var u = rest_begin; u * unit < length; u += lanes) {
    let v = load(row, u * unit, mean, rstd);
    sums = Terms(sums.g + v.g, sums.h + v.g * v.h);
  }
  let both = vec2<f32>(total(sums.g), total(sums.h));
  let means = row_sum_of_pairs(both, lid, lane, lanes) / f32(p.length);

  for (var k = 0u; k < items / unit; k++) {
    let e = (k * lanes + lane) * unit;
    if (e < length) {
      store_unit(base + e, derivative(values[k], means, rstd));
    }
  }
  for (var u = rest_begin; u * unit < length; u += lanes) {
    store_unit(base + u * unit, derivative(load(row, u * unit, mean, rstd), means, rstd));
  }
}
