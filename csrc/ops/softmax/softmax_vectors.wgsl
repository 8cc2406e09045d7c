// softmax_rows for rows of aligned vectors of 16 bytes. `lanes` invocations share a row. Each keeps up to
// `items` vectors in registers.
//
// @operand y: out {bits128}
// @operand x: in {bits128}
// @operand w: in {bits128} optional
// @const   math: {softmax, log_softmax, softmax_gradient, log_softmax_gradient}
// @const   items: u32 in {1, 2, 4, 8}
// @require has_w == (softmax_gradient || log_softmax_gradient)
// @grid invocations p.rows << p.lanes_log2

import package::norm::row::{row_max, row_sum};
import package::norm::vectors::{kParts, Parts, unpack, pack, total};
import package::softmax::math::{value_t, shifted, term, of_sum, result, checked_maximum};

const row_slots = 256u;

struct Params {
  rows: u32,
  vectors: u32, // of a row, at most items * lanes
  lanes_log2: u32,
}

// The functions of math.wgsl on four elements.
@if(!has_w)
fn max4(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
  return vec4<f32>(max_flat_f(a.x, b.x), max_flat_f(a.y, b.y), max_flat_f(a.z, b.z), max_flat_f(a.w, b.w));
}

@if(!has_w)
fn shifted4(v: vec4<f32>, maximum: f32) -> vec4<f32> {
  return vec4<f32>(shifted(v.x, maximum), shifted(v.y, maximum), shifted(v.z, maximum), shifted(v.w, maximum));
}

@if(has_w)
fn term4(x: vec4<f32>, w: vec4<f32>) -> vec4<f32> {
  return vec4<f32>(term(vec2<f32>(x.x, w.x)), term(vec2<f32>(x.y, w.y)), term(vec2<f32>(x.z, w.z)),
                   term(vec2<f32>(x.w, w.w)));
}
@else
fn term4(v: vec4<f32>) -> vec4<f32> { return vec4<f32>(term(v.x), term(v.y), term(v.z), term(v.w)); }

@if(has_w)
fn result4(x: vec4<f32>, w: vec4<f32>, s: f32) -> vec4<f32> {
  return vec4<f32>(result(vec2<f32>(x.x, w.x), s), result(vec2<f32>(x.y, w.y), s),
                   result(vec2<f32>(x.z, w.z), s), result(vec2<f32>(x.w, w.w), s));
}
@else
fn result4(v: vec4<f32>, s: f32) -> vec4<f32> {
  return vec4<f32>(result(v.x, s), result(v.y, s), result(v.z, s), result(v.w, s));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let lanes = 1u << p.lanes_log2;
  let lane = lid & (lanes - 1u);
  let row = (wid.y * workgroups.x + wid.x) * (256u >> p.lanes_log2) + (lid >> p.lanes_log2);
  let vectors = select(0u, p.vectors, row < p.rows);
  let base = row * p.vectors;

  // Behind the end of the row: elements that add nothing to the sum.
  var x = array<Parts, items>();
  @if(has_w) var w = array<Parts, items>();
  for (var k = 0u; k < items; k++) {
    let e = k * lanes + lane;
    if (e < vectors) {
      x[k] = unpack(load_x(p.x_at + base + e));
      @if(has_w) w[k] = unpack(load_w(p.w_at + base + e));
    }
    @if(!has_w) {
      if (e >= vectors) {
        for (var j = 0u; j < kParts; j++) {
          x[k][j] = vec4<f32>(-inf_f());
        }
      }
    }
  }

  @if(!has_w) {
    var most = vec4<f32>(-inf_f());
    for (var k = 0u; k < items; k++) {
      for (var j = 0u; j < kParts; j++) {
        most = max4(most, x[k][j]);
      }
    }
    let own = max_flat_f(max_flat_f(most.x, most.y), max_flat_f(most.z, most.w));
    let maximum = checked_maximum(row_max(own, lid, 1u, lane, lanes));
    for (var k = 0u; k < items; k++) {
      for (var j = 0u; j < kParts; j++) {
        x[k][j] = shifted4(x[k][j], maximum);
      }
    }
  }

  var sums = vec4<f32>();
  for (var k = 0u; k < items; k++) {
    for (var j = 0u; j < kParts; j++) {
      @if(has_w) sums += term4(x[k][j], w[k][j]);
      @else sums += term4(x[k][j]);
    }
  }
  let s = of_sum(row_sum(total(sums), lid, 1u, lane, lanes));

  for (var k = 0u; k < items; k++) {
    let e = k * lanes + lane;
    if (e < vectors) {
      var v = Parts();
      for (var j = 0u; j < kParts; j++) {
        @if(has_w) v[j] = result4(x[k][j], w[k][j], s);
        @else v[j] = result4(x[k][j], s);
      }
      store_y(p.y_at + base + e, pack(v));
    }
  }
}
