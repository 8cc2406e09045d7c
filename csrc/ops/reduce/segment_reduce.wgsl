// Reduces consecutive elements of a dimension, segment by segment. Each segment of each row has one
// result. p.lanes invocations of a workgroup compute partial results of it.
//
// @operand out: out float
// @operand x: in like out
// @operand bound: in {i32} // segments + 1 of each row
// @const   reduction: {sum, mean, maximum, minimum, product}

import package::reduce::segments::{Params, kWorkgroup, segment_of};

fn identity() -> f32 {
  @if(maximum) return -inf_f();
  @elif(minimum) return inf_f();
  @elif(product) return 1.0;
  @else return 0.0;
}

fn combine(a: f32, b: f32) -> f32 {
  @if(maximum) return max_f(a, b);
  @elif(minimum) return min_f(a, b);
  @elif(product) return a * b;
  @else return a + b;
}

var<workgroup> partial: array<f32, kWorkgroup>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let id = (group.y * groups.x + group.x) * kWorkgroup + local;
  let result = id / p.lanes;
  let lane = id % p.lanes;
  let segment = segment_of(result);
  var total = identity();
  for (var i = segment.begin + lane; i < segment.end; i += p.lanes) {
    total = combine(total, load_x(p.x_at + segment.x + i * p.inner));
  }
  if (p.lanes > 1u) {
    partial[local] = total;
    for (var half = kWorkgroup / 2u; half > 0u; half /= 2u) {
      workgroupBarrier();
      if (local < half) {
        partial[local] = combine(partial[local], partial[local + half]);
      }
    }
    total = partial[0u];
  }
  if (lane == 0u && result < p.results) {
    if (p.has_initial != 0u) {
      total = combine(p.initial, total);
    }
    @if(mean) {
      if (segment.end > segment.begin) {
        total = div_f(total, f32(segment.end - segment.begin));
      } else if (p.has_initial == 0u) {
        total = nan_f();
      }
    }
    store_out(p.out_at + result, total);
  }
}
