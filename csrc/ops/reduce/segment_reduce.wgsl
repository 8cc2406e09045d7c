// Reduces consecutive elements of a dimension, segment by segment. A segment of one row is one
// result, to which p.lanes invocations of a workgroup give partial results.

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
}
@group(0) @binding(31) var<uniform> p: Params;

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
@group(0) @binding(2) var<storage, read> b2: array<i32>;
fn store_out(i: u32, v: f32) { b0[i] = v; }
fn load_x(i: u32) -> f32 { return b1[i]; }
fn load_bound(i: u32) -> i32 { return b2[i]; } // segments + 1 of each row
// @end

// @hook reduction
fn identity() -> f32 { return 0.0; }
fn combine(a: f32, b: f32) -> f32 { return a + b; }
// @end

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
    let bound = p.bound_offset + row * (p.segments + 1u) + segment;
    begin = u32(clamp(load_bound(bound), 0, i32(p.size)));
    end = u32(clamp(load_bound(bound + 1u), i32(begin), i32(p.size)));
    let x = p.x_offset + row * p.size * p.inner + result % p.inner;
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
    if (p.mean != 0u) {
      let count = f32(end - begin);
      if (end > begin) {
        total = div_f(total, count);
      } else if (p.has_initial == 0u) {
        total = nan_f();
      }
    }
    store_out(p.out_offset + result, total);
  }
}
