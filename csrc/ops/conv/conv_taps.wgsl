// The gradient of a weight with few filters in each group, as in a depthwise convolution: a matrix with few rows, whose
// elements are sums over all positions of all images. A workgroup computes the taps of one line of the kernel for one filter.
// Its invocations divide the positions, so that neighbours read neighbours in memory, and their sums are added at the end.
//
// @operand c: out float akin a
// @operand a: in float
// @operand b: in like a
// @operand d: in like a optional

import package::matmul::product::{Params, acc_t, acc_add, acc_mul, epilogue, BandedTile, banded_tile};
import package::conv::conv_places::{Params, Gathered, two_levels, tap, position, place_of_c, place_of_further};
// @require weight

const invocations = 256u;

// Of each invocation, the sums of the taps of a line: eight at most, kMostTaps of strategies.cpp.
var<workgroup> parts: array<array<vec4<f32>, 2u>, invocations>;

fn column_of_c(n: u32) -> u32 {
  return place_of_c(n);
}

fn column_of_further(n: u32, strides: vec4<u32>) -> u32 {
  return place_of_further(n, strides);
}

// The product with tap j of a line. What lies in the padding is not multiplied: zero times infinity would be NaN.
fn product_at(a: f32, line: u32, first: i32, j: u32) -> f32 {
  let z = bitcast<u32>(first + i32(j * p.dilation.z));
  if (j < p.tap_row.x && z < p.b_sizes.z) {
    return a * load_b(line + z * p.b_strides.z);
  }
  return 0.0;
}

fn four_products(a: f32, line: u32, first: i32, j: u32) -> vec4<f32> {
  return vec4<f32>(product_at(a, line, first, j), product_at(a, line, first, j + 1u), product_at(a, line, first, j + 2u),
                   product_at(a, line, first, j + 3u));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let here = banded_tile(wid.y * groups.x + wid.x, vec2<u32>(1u, p.tap_row.x));
  if (here.piece >= p.splits) {
    return;
  }
  let first_tap = tap(here.n0);
  let row_of_a = p.a_at + here.batch * p.a_batch + here.m0 * p.a_row;
  let group = p.b_at + here.batch * p.b_batch + first_tap.offset;
  var sums0 = vec4<f32>();
  var sums1 = vec4<f32>();
  for (var k = here.k_begin + t; k < here.k_end; k += invocations) {
    let place = position(k);
    let at = place.at + first_tap.at;
    if (all(bitcast<vec2<u32>>(at.xy) < p.b_sizes.xy)) {
      let a = load_a(row_of_a + two_levels(k, p.position_volume, p.a_outer, p.a_column));
      let line = group + place.offset + u32(at.x) * p.b_strides.x + u32(at.y) * p.b_strides.y;
      sums0 += four_products(a, line, at.z, 0u);
      if (p.tap_row.x > 4u) {
        sums1 += four_products(a, line, at.z, 4u);
      }
    }
  }
  parts[t][0] = sums0;
  parts[t][1] = sums1;
  for (var step = invocations / 2u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (t < step) {
      parts[t][0] += parts[t + step][0];
      parts[t][1] += parts[t + step][1];
    }
  }
  workgroupBarrier();
  if (t < p.tap_row.x) {
    let n = here.n0 + t;
    let c = p.c_at + here.c_batch * p.c_batch + here.m0 * p.c_row + column_of_c(n);
    store_c(c, epilogue(parts[0][t / 4u][t % 4u], here.batch, here.m0, n));
  }
}
