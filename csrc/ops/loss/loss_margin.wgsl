// Hinge losses between the target classes of a sample and all its other classes:
// sum of max(0, margin - x[target] + x[other]) ^ power. One invocation per sample and class.

struct Params {
  count: u32,
  classes: u32,
  targets: u32, // per sample at most; a negative one ends the list
  squared: u32,
  x: vec4<u32>, // offset, strides of sample and class
  labels: vec4<u32>,
  out: vec4<u32>,
  gradient: vec2<u32>, // offset, stride of sample
  weight: vec2<u32>,   // offset, stride
  marks: vec4<u32>,
  margin: f32,
  scale: f32,
  error: u32,
}

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
@group(0) @binding(2) var<storage, read> b2: array<vec2<u32>>;
fn store_out(i: u32, v: f32) { b0[i] = v; }
fn load_x(i: u32) -> f32 { return b1[i]; }
fn load_labels(i: u32) -> vec2<u32> { return b2[i]; }
// @end

@group(0) @binding(30) var<storage, read_write> errors: array<atomic<u32>>;
@group(0) @binding(31) var<uniform> p: Params;

// @hook class_weight
fn class_weight(class_index: u32) -> f32 { return 1.0; }
// @end

// What is done with whether a class is a target.
// @hook mark
fn mark(sample: u32, class_index: u32, is_target: bool) {}
// @end

fn value_of(sample: u32, class_index: u32) -> f32 {
  return load_x(p.x.x + sample * p.x.y + class_index * p.x.z);
}

// Target k of the sample; the number of classes behind the end of the list.
fn target_of(sample: u32, k: u32) -> u32 {
  if (k >= p.targets) {
    return p.classes;
  }
  let label = load_labels(p.labels.x + sample * p.labels.y + k * p.labels.z);
  if (label.y == 0u && label.x < p.classes) {
    return label.x;
  }
  if (p.targets == 1u || !is_neg_l(label)) {
    atomicMax(&errors[0], p.error);
  }
  return p.classes;
}

// How often the class is a target.
fn times_target(sample: u32, class_index: u32) -> u32 {
  var times = 0u;
  for (var k = 0u; ; k++) {
    let at = target_of(sample, k);
    if (at == p.classes) {
      break;
    }
    times += select(0u, 1u, at == class_index);
  }
  return times;
}

fn hinge(difference: f32) -> f32 {
  let z = max_f(p.margin + difference, 0.0);
  return select(z, z * z, p.squared != 0u);
}

fn hinge_slope(difference: f32) -> f32 {
  let z = p.margin + difference;
  return select(0.0, select(1.0, 2.0 * z, p.squared != 0u), z > 0.0);
}

// The loss that this class is the other side of.
fn loss(sample: u32, class_index: u32) -> f32 {
  let is_target = times_target(sample, class_index) != 0u;
  mark(sample, class_index, is_target);
  var sum = 0.0;
  if (!is_target) {
    let value = value_of(sample, class_index);
    for (var k = 0u; ; k++) {
      let at = target_of(sample, k);
      if (at == p.classes) {
        break;
      }
      sum += class_weight(at) * hinge(value - value_of(sample, at));
    }
  }
  return sum * p.scale;
}

// The derivative of the sample's loss by this class's value.
fn slope(sample: u32, class_index: u32) -> f32 {
  let times = times_target(sample, class_index);
  let value = value_of(sample, class_index);
  var sum = 0.0;
  if (times == 0u) {
    for (var k = 0u; ; k++) {
      let at = target_of(sample, k);
      if (at == p.classes) {
        break;
      }
      sum += class_weight(at) * hinge_slope(value - value_of(sample, at));
    }
  } else {
    for (var other = 0u; other < p.classes; other++) {
      if (times_target(sample, other) == 0u) {
        sum -= hinge_slope(value_of(sample, other) - value);
      }
    }
    sum *= f32(times) * class_weight(class_index);
  }
  return sum * p.scale;
}

// @hook element
fn element(sample: u32, class_index: u32) -> f32 { return loss(sample, class_index); }
// @end

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.count) {
    return;
  }
  let sample = i / p.classes;
  let class_index = i % p.classes;
  store_out(p.out.x + sample * p.out.y + class_index * p.out.z, element(sample, class_index));
}
