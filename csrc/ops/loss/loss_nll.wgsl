// Negative log likelihood: the input at each target's class, weighted by class, then summed up or
// averaged. Many terms are summed in two stages: sums of workgroups, and the sum of those.

struct Params {
  x: Layout, // channels are classes
  label: Layout,
  out: Layout,
  size: vec3<u32>,
  count: u32,
  ignored: vec2<u32>,
  classes: u32,
  error: u32,
  weight_offset: u32,
  weight_step: u32,
  total_offset: u32,
  reduction: u32, // at::Reduction: 0 none, 1 mean, 2 sum
}

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read_write> b1: array<f32>;
@group(0) @binding(2) var<storage, read> b2: array<f32>;
@group(0) @binding(3) var<storage, read> b3: array<vec2<u32>>;
fn store_out(i: u32, v: f32) { b0[i] = v; }
fn store_total(i: u32, v: f32) { b1[i] = v; }
fn load_x(i: u32) -> f32 { return b2[i]; }
fn load_label(i: u32) -> vec2<u32> { return b3[i]; }
// @end

@group(0) @binding(30) var<storage, read_write> errors: array<atomic<u32>>;
@group(0) @binding(31) var<uniform> p: Params;

// @hook class_weight
fn class_weight(class_index: u32) -> f32 { return 1.0; }
// @end

// @hook label_at
fn label_at(i: u32) -> vec2<u32> { return load_label(i); }
// @end

// Term i and its weight.
// @hook term
fn term(i: u32) -> vec2<f32> {
  let cell = cell_of(i, 1u, p.size, false);
  let label = label_at(element_of(p.label, cell));
  if (all(label == p.ignored)) {
    return vec2<f32>(0.0);
  }
  if (label.y != 0u || label.x >= p.classes) {
    atomicMax(&errors[0], p.error);
    return vec2<f32>(0.0);
  }
  let weight = class_weight(label.x);
  return vec2<f32>(-weight * load_x(element_of(p.x, cell) + label.x * p.x.channel), weight);
}
// @end

fn finish(sum: vec2<f32>) {
  store_total(p.total_offset, sum.y);
  store_out(p.out.offset, select(sum.x, div_f(sum.x, sum.y), p.reduction == 1u));
}

// What becomes of a workgroup's sum.
// @hook deliver
fn deliver(group: u32, sum: vec2<f32>) { finish(sum); }
// @end

var<workgroup> sums: array<vec2<f32>, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let first = (group.y * groups.x + group.x) * 256u + local.x;
  if (p.reduction == 0u) {
    if (first < p.count) {
      store_out(element_of(p.out, cell_of(first, 1u, p.size, false)), term(first).x);
    }
    if (first == 0u) {
      store_total(p.total_offset, 0.0);
    }
    return;
  }
  var sum = vec2<f32>(0.0);
  for (var i = first; i < p.count; i += groups.x * groups.y * 256u) {
    sum += term(i);
  }
  sums[local.x] = sum;
  for (var half = 128u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (local.x < half) {
      sums[local.x] += sums[local.x + half];
    }
  }
  if (local.x == 0u) {
    deliver(group.y * groups.x + group.x, sums[0]);
  }
}
