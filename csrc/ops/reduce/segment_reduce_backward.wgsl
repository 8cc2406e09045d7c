// Gradient of segment_reduce: p.lanes invocations write the elements of one segment of one row.

struct Params {
  results: u32, // rows * segments * inner
  segments: u32,
  inner: u32, // interleaved elements
  size: u32, // of the dimension
  lanes: u32, // 1 or 64
  mean: u32,
  has_initial: u32,
  initial: f32,
  out_offset: u32,
  x_offset: u32,
  bound_offset: u32,
  gradient_offset: u32,
  result_offset: u32,
}
@group(0) @binding(31) var<uniform> p: Params;

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
@group(0) @binding(2) var<storage, read> b2: array<i32>;
@group(0) @binding(3) var<storage, read> b3: array<f32>;
@group(0) @binding(4) var<storage, read> b4: array<f32>;
fn store_out(i: u32, v: f32) { b0[i] = v; }
fn load_x(i: u32) -> f32 { return b1[i]; }
fn load_bound(i: u32) -> i32 { return b2[i]; } // segments + 1 of each row
fn load_gradient(i: u32) -> f32 { return b3[i]; }
fn load_result(i: u32) -> f32 { return b4[i]; }
// @end

// How many elements share the gradient, as far as element x says.
// @hook counted
fn counted(x: f32, result: f32) -> u32 { return 0u; }
// @end

// The gradient of element i of begin..end, x its position at i = 0.
// @hook element_gradient
fn element_gradient(x: u32, i: u32, begin: u32, end: u32, result: f32, gradient: f32,
                    count: u32) -> f32 {
  return gradient;
}
// @end

const kWorkgroup = 64u;
var<workgroup> counts: array<u32, kWorkgroup>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let id = (group.y * groups.x + group.x) * kWorkgroup + local;
  let at = id / p.lanes;
  let lane = id % p.lanes;
  let segment = at / p.inner % p.segments;
  let row = at / p.inner / p.segments;
  let x = row * p.size * p.inner + at % p.inner;
  var begin = 0u;
  var end = 0u;
  var result = 0.0;
  var gradient = 0.0;
  var count = 0u;
  if (at < p.results) {
    let bound = p.bound_offset + row * (p.segments + 1u) + segment;
    begin = u32(clamp(load_bound(bound), 0, i32(p.size)));
    end = u32(clamp(load_bound(bound + 1u), i32(begin), i32(p.size)));
    result = load_result(p.result_offset + at);
    gradient = load_gradient(p.gradient_offset + at);
    for (var i = begin + lane; i < end; i += p.lanes) {
      count += counted(load_x(p.x_offset + x + i * p.inner), result);
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
    store_out(p.out_offset + x + i * p.inner,
              element_gradient(p.x_offset + x, i, begin, end, result, gradient, count));
  }
}
