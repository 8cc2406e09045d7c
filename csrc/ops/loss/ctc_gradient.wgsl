// Gradient of the connectionist temporal classification loss from alpha and beta (see ctc.wgsl). One
// workgroup computes one step of one sequence. If several labels name the same class, the invocation
// of the first of them sums their probabilities.
//
// @operand out: out {f32}
// @operand x: in {f32}
// @operand gradient: in {f32}
// @operand loss: in {f32}
// @operand alpha: in {f32}
// @operand beta: in {f32}
// @operand label: in {i32}
// @operand sequence: in {i32} // steps, labels, first label; of each sequence

struct Params {
  steps: u32, // the size of x's first dimension; a sequence may have fewer
  states: u32, // of the longest target
  classes: u32,
  blank: u32,
  x_step: u32,
  x_batch: u32,
  x_class: u32,
  batches: u32,
  zero_infinity: u32,
}

const kLanes = 256u;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let cell = group.y * groups.x + group.x;
  if (cell >= p.steps * p.batches) {
    return;
  }
  let step = cell / p.batches;
  let batch = cell % p.batches;
  let sequence = p.sequence_at + 3u * batch;
  let labels = u32(load_sequence(sequence + 1u));
  let first_label = p.label_at + u32(load_sequence(sequence + 2u));
  let loss = load_loss(p.loss_at + batch);
  let gradient = load_gradient(p.gradient_at + batch);
  let x = p.x_at + step * p.x_step + batch * p.x_batch;
  let out = p.out_at + cell * p.classes;
  let impossible = is_inf_f(loss);
  let none = step >= u32(load_sequence(sequence)) || (impossible && p.zero_infinity != 0u);
  for (var c = lane; c < p.classes; c += kLanes) {
    var value = 0.0;
    if (!none) {
      let log_probability = load_x(x + c * p.x_class);
      value = select(exp_f(log_probability) * gradient, nan_f(),
                     impossible || is_neginf_f(log_probability));
    }
    store_out(out + c, value);
  }
  storageBarrier();
  if (none || impossible) {
    return;
  }
  // k == labels stands for the blank.
  for (var k = lane; k <= labels; k += kLanes) {
    let c = class_at(first_label, labels, k);
    var total = LogSum(-inf_f(), 0.0);
    var first = true;
    if (k < labels) {
      first = c != p.blank;
      for (var j = 0u; j < k && first; j++) {
        first = class_at(first_label, labels, j) != c;
      }
    } else {
      for (var s = 0u; s <= 2u * labels; s += 2u) {
        total = plus_logarithm(total, state_at(step, batch, s));
      }
    }
    for (var j = select(k, 0u, k == labels); j < labels && first; j++) {
      if (class_at(first_label, labels, j) == c) {
        total = plus_logarithm(total, state_at(step, batch, 2u * j + 1u));
      }
    }
    if (first && total.sum > 0.0) {
      let share = exp_f(log_f(total.sum) + total.greatest + loss - load_x(x + c * p.x_class));
      store_out(out + c, load_out(out + c) - share * gradient);
    }
  }
}

fn class_at(first_label: u32, labels: u32, k: u32) -> u32 {
  if (k == labels) {
    return p.blank;
  }
  return min(u32(load_label(first_label + k)), p.classes - 1u);
}

fn state_at(step: u32, batch: u32, state: u32) -> f32 {
  let i = (batch * p.steps + step) * p.states + state;
  return load_alpha(p.alpha_at + i) + load_beta(p.beta_at + i);
}

// Represents sum * e^greatest, a sum of numbers that are given by their logarithms.
struct LogSum {
  greatest: f32,
  sum: f32,
}

fn plus_logarithm(a: LogSum, x: f32) -> LogSum {
  if (is_neginf_f(x)) {
    return a;
  }
  if (x > a.greatest) {
    return LogSum(x, a.sum * exp_f(a.greatest - x) + 1.0);
  }
  return LogSum(a.greatest, a.sum + exp_f(x - a.greatest));
}
