// Gradient of the connectionist temporal classification loss from alpha and beta (see ctc.wgsl): a
// workgroup computes one step of one sequence. Of the labels that name one class, the first one's
// invocation sums the probability of all.

struct Params {
  steps: u32, // of the longest sequence
  states: u32, // of the longest target
  classes: u32,
  blank: u32,
  batches: u32,
  zero_infinity: u32,
  x_offset: u32,
  x_step: u32,
  x_batch: u32,
  x_class: u32,
  out_offset: u32,
  gradient_offset: u32,
  loss_offset: u32,
  alpha_offset: u32,
  beta_offset: u32,
  label_offset: u32,
  sequence_offset: u32,
}
@group(0) @binding(31) var<uniform> p: Params;

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
@group(0) @binding(2) var<storage, read> b2: array<f32>;
@group(0) @binding(3) var<storage, read> b3: array<f32>;
@group(0) @binding(4) var<storage, read> b4: array<f32>;
@group(0) @binding(5) var<storage, read> b5: array<f32>;
@group(0) @binding(6) var<storage, read> b6: array<i32>;
@group(0) @binding(7) var<storage, read> b7: array<i32>;
fn load_out(i: u32) -> f32 { return b0[i]; }
fn store_out(i: u32, v: f32) { b0[i] = v; }
fn load_x(i: u32) -> f32 { return b1[i]; }
fn load_gradient(i: u32) -> f32 { return b2[i]; }
fn load_loss(i: u32) -> f32 { return b3[i]; }
fn load_alpha(i: u32) -> f32 { return b4[i]; }
fn load_beta(i: u32) -> f32 { return b5[i]; }
fn load_label(i: u32) -> i32 { return b6[i]; }
fn load_sequence(i: u32) -> i32 { return b7[i]; } // steps, labels, first label; of each sequence
// @end

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
  let sequence = p.sequence_offset + 3u * batch;
  let labels = u32(load_sequence(sequence + 1u));
  let first_label = p.label_offset + u32(load_sequence(sequence + 2u));
  let loss = load_loss(p.loss_offset + batch);
  let gradient = load_gradient(p.gradient_offset + batch);
  let x = p.x_offset + step * p.x_step + batch * p.x_batch;
  let out = p.out_offset + cell * p.classes;
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
  // Beyond the labels is the blank's turn.
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
  return load_alpha(p.alpha_offset + i) + load_beta(p.beta_offset + i);
}

// The logarithm of a sum: sum * e^greatest.
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
