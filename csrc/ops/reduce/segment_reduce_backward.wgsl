// Gradient of segment_reduce: p.lanes invocations write the elements of one segment of one row.
//
// @operand out: out float
// @operand x: in like out
// @operand bound: in {i32} // segments + 1 of each row
// @operand gradient: in like out
// @operand result: in like out
// @const   reduction: {sum, mean, maximum, minimum, product}

import package::reduce::segments::{Params, kWorkgroup, segment_of};

// What element x adds to the number of elements that share the gradient.
fn counted(x: f32, result: f32) -> u32 {
  @if(maximum || minimum) return select(0u, 1u, is_nan_f(x) || x == result);
  @else return 0u;
}

// The gradient of element i of begin..end, x its position at i = 0.
@if(maximum || minimum)
fn element_gradient(x: u32, i: u32, begin: u32, end: u32, result: f32, gradient: f32,
                    count: u32) -> f32 {
  if (counted(load_x(x + i * p.inner), result) == 0u) {
    return 0.0;
  }
  // Only positive gradients are divided among equal elements: ATen's kernels do so.
  return select(gradient, gradient / f32(count), gradient > 0.0);
}
@elif(mean)
fn element_gradient(x: u32, i: u32, begin: u32, end: u32, result: f32, gradient: f32,
                    count: u32) -> f32 {
  return div_f(gradient, f32(end - begin));
}
@elif(product)
fn element_gradient(x: u32, i: u32, begin: u32, end: u32, result: f32, gradient: f32,
                    count: u32) -> f32 {
  let here = load_x(x + i * p.inner);
  if (!is_nan_f(here) && here != 0.0) {
    return div_f(gradient * result, here);
  }
  var others = select(1.0, p.initial, p.has_initial != 0u);
  for (var j = begin; j < end; j++) {
    if (j != i) {
      others *= load_x(x + j * p.inner);
    }
  }
  return gradient * others;
}
@else
fn element_gradient(x: u32, i: u32, begin: u32, end: u32, result: f32, gradient: f32,
                    count: u32) -> f32 {
  return gradient;
}

var<workgroup> counts: array<u32, kWorkgroup>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let id = (group.y * groups.x + group.x) * kWorkgroup + local;
  let at = id / p.lanes;
  let lane = id % p.lanes;
  let segment = segment_of(at);
  let x = segment.x;
  let begin = segment.begin;
  let end = segment.end;
  var result = 0.0;
  var gradient = 0.0;
  var count = 0u;
  if (at < p.results) {
    result = load_result(p.result_at + at);
    gradient = load_gradient(p.gradient_at + at);
    for (var i = begin + lane; i < end; i += p.lanes) {
      count += counted(load_x(p.x_at + x + i * p.inner), result);
    }
  }
  if (p.lanes > 1u) {
    counts[local] = count;
    for (var half = kWorkgroup / 2u; half > 0u; half /= 2u) {
      workgroupBarrier();
      if (local < half) {
        counts[local] += counts[local + half];
      }
    }
    workgroupBarrier();
    count = counts[0u];
  }
  for (var i = begin + lane; i < end; i += p.lanes) {
    store_out(p.out_at + x + i * p.inner,
              element_gradient(p.x_at + x, i, begin, end, result, gradient, count));
  }
}
