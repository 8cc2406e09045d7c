// Softmax, log-softmax and their gradients along rows of `length` elements that lie `inner` apart. `lanes`
// invocations share a row and keep `items` elements each in registers; the elements of a longer row beyond
// these are read again in each step.
//
// y: the result, or the gradient of the input. x: the input, or the gradient of the result. w: the result of
// the forward pass, for the gradients.
//
// @operand y: words float
// @operand x: in float
// @operand w: in float optional
// @const   math: {softmax, log_softmax, softmax_gradient, log_softmax_gradient}
// @const   items: u32 in {1, 2, 4, 8, 16, 32}
// @require !owns_y || items >= 2
// @require has_w == (softmax_gradient || log_softmax_gradient)
// @grid invocations p.rows << p.lanes_log2

import package::norm::row::{row_max, row_sum};
import package::softmax::math::{value_t, shifted, term, of_sum, result, checked_maximum};

const row_slots = 256u;

struct Params {
  rows: u32,
  length: u32,
  inner: u32,       // distance of a row's elements; `inner` rows lie interleaved
  lanes_log2: u32,
  lanes_first: u32, // 1: neighbouring invocations share a row; 0: they have neighbouring rows
}

// Neighbouring elements that an invocation stores together.
@if(owns_y) const unit = 2u;
@else const unit = 1u;

@if(has_w)
fn load(i: u32) -> value_t { return vec2<f32>(load_x(p.x_at + i), load_w(p.w_at + i)); }
@else
fn load(i: u32) -> value_t { return load_x(p.x_at + i); }

fn store(i: u32, a: f32, b: f32) {
  @if(owns_y) store2_y(p.y_at + i, a, b);
  @else store_y(p.y_at + i, a);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let lanes = 1u << p.lanes_log2;
  let per_workgroup = 256u >> p.lanes_log2;
  let lanes_first = p.lanes_first != 0u;
  let lane = select(lid / per_workgroup, lid & (lanes - 1u), lanes_first);
  let place = select(lid & (per_workgroup - 1u), lid >> p.lanes_log2, lanes_first);
  let slot = lane * per_workgroup + place;
  let row = (wid.y * workgroups.x + wid.x) * per_workgroup + place;
  let length = select(0u, p.length, row < p.rows);
  let base = row / p.inner * p.inner * p.length + row % p.inner;
  let rest_begin = items / unit * lanes + lane; // in units

  var values = array<value_t, items>();
  for (var k = 0u; k < items; k++) {
    let e = (k / unit * lanes + lane) * unit + k % unit;
    if (e < length) {
      values[k] = load(base + e * p.inner);
    }
  }

  var maximum = 0.0;
  @if(!has_w) {
    maximum = -inf_f();
    for (var k = 0u; k < items; k++) {
      if ((k / unit * lanes + lane) * unit + k % unit < length) {
        maximum = max_f(maximum, values[k]);
      }
    }
    for (var u = rest_begin; u * unit < length; u += lanes) {
      for (var k = 0u; k < unit; k++) {
        maximum = max_f(maximum, load(base + (u * unit + k) * p.inner));
      }
    }
    maximum = row_max(maximum, slot, per_workgroup, lane, lanes);
    maximum = checked_maximum(maximum);
  }

  var sum = 0.0;
  for (var k = 0u; k < items; k++) {
    if ((k / unit * lanes + lane) * unit + k % unit < length) {
      values[k] = shifted(values[k], maximum);
      sum += term(values[k]);
    }
  }
  for (var u = rest_begin; u * unit < length; u += lanes) {
    for (var k = 0u; k < unit; k++) {
      sum += term(shifted(load(base + (u * unit + k) * p.inner), maximum));
    }
  }
  let total = of_sum(row_sum(sum, slot, per_workgroup, lane, lanes));

  for (var k = 0u; k < items; k += unit) {
    let e = (k / unit * lanes + lane) * unit;
    if (e < length) {
      store(base + e * p.inner, result(values[k], total), result(values[k + unit - 1u], total));
    }
  }
  for (var u = rest_begin; u * unit < length; u += lanes) {
    let e = base + u * unit * p.inner;
    let a = result(shifted(load(e), maximum), total);
    store(e, a, result(shifted(load(e + (unit - 1u) * p.inner), maximum), total));
  }
}
