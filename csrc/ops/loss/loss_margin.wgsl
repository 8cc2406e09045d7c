// Hinge losses between the target classes of a sample and all its other classes:
// sum of max(0, margin - x[target] + x[other]) ^ power. With `gradient` (that of each sample's loss), the result is
// the gradient of x. One invocation per sample and class.
//
// @operand out: out float
// @operand x: in float
// @operand label: in {i64}
// @operand gradient: in like x optional
// @operand weight: in like x optional // of the classes
// @operand marks: out float optional  // 1 where a class is a target, else 0
// @errors

// Strides, in elements: `_sample` from sample to sample, `_class` from class to class, label_step from label to label.
struct Params {
  count: u32,
  classes: u32,
  targets: u32, // per sample at most; a negative one ends the list
  squared: u32,
  x_sample: u32,
  x_class: u32,
  label_sample: u32,
  label_step: u32,
  out_sample: u32,
  out_class: u32,
  gradient_sample: u32,
  weight_class: u32,
  marks_sample: u32,
  marks_class: u32,
  margin: f32,
  scale: f32,
  error: u32, // the code for a target that is no class
}

fn class_weight(class_index: u32) -> f32 {
  @if(has_weight) return load_weight(p.weight_at + class_index * p.weight_class);
  @else return 1.0;
}

fn value_of(sample: u32, class_index: u32) -> f32 {
  return load_x(p.x_at + sample * p.x_sample + class_index * p.x_class);
}

// Target k of the sample, or the number of classes if the list is shorter.
fn target_of(sample: u32, k: u32) -> u32 {
  if (k >= p.targets) {
    return p.classes;
  }
  let label = load_label(p.label_at + sample * p.label_sample + k * p.label_step);
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

// The sum of the loss's terms in which this class is the `other` one.
fn loss(sample: u32, class_index: u32) -> f32 {
  let is_target = times_target(sample, class_index) != 0u;
  @if(has_marks) {
    store_marks(p.marks_at + sample * p.marks_sample + class_index * p.marks_class,
                select(0.0, 1.0, is_target));
  }
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

// The derivative of the sample's loss with respect to this class's value.
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

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.count) {
    return;
  }
  let sample = i / p.classes;
  let class_index = i % p.classes;
  let at = p.out_at + sample * p.out_sample + class_index * p.out_class;
  @if(has_gradient) {
    let gradient = load_gradient(p.gradient_at + sample * p.gradient_sample);
    store_out(at, slope(sample, class_index) * gradient);
  }
  @else store_out(at, loss(sample, class_index));
}
