// Reduces consecutive elements of a dimension, segment by segment. Each segment of each row has one
// result. p.lanes invocations of a workgroup compute partial results of it.
//
// @operand out: out float
// @operand x: in like out
// @operand bound: in {i32} // segments + 1 of each row
// @const   reduction: {sum, mean, maximum, minimum, product}

struct Params {
  results: u32, // rows * segments * inner
  segments: u32,
  inner: u32, // interleaved elements
  size: u32, // of the dimension
  lanes: u32, // 1 or 64
  has_initial: u32,
  initial: f32,
}

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

const kWorkgroup = 64u;
var<workgroup> partial: array<f32, kWorkgroup>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let id = (group.y * groups.x + group.x) * kWorkgroup + local;
  let result = id / p.lanes;
  let lane = id % p.lanes;
  let segment = result / p.inner % p.segments;
  let row = result / p.inner / p.segments;
  var total = identity();
  var begin = 0u;
  var end = 0u;
  if (result < p.results) {
    let bound = p.bound_at + row * (p.segments + 1u) + segment;
    begin = u32(clamp(load_bound(bound), 0, i32(p.size)));
    end = u32(clamp(load_bound(bound + 1u), i32(begin), i32(p.size)));
    let x = p.x_at + row * p.size * p.inner + result % p.inner;
    for (var i = begin + lane; i < end; i += p.lanes) {
      total = combine(total, load_x(x + i * p.inner));
    }
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
      if (end > begin) {
        total = div_f(total, f32(end - begin));
      } else if (p.has_initial == 0u) {
        total = nan_f();
      }
    }
    store_out(p.out_at + result, total);
  }
}
