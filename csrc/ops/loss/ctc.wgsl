// The recursion of the connectionist temporal classification loss (Graves et al., 2006), in
// logarithms. One workgroup computes one sequence, forwards (alpha) or backwards (beta). The
// backward recursion is the forward one with the order of steps and of states reversed. A target of
// n labels has 2n + 1 states: the labels, and a blank before, between and after them.
//
// @operand out: out {f32} // alpha or beta
// @operand loss: out {f32} optional // forwards only
// @operand x: in {f32}
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
}

const kLanes = 256u;

@if(has_loss) const backwards = false;
@else const backwards = true;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let batch = group.x;
  let steps = u32(load_sequence(p.sequence_at + 3u * batch));
  let labels = u32(load_sequence(p.sequence_at + 3u * batch + 1u));
  let first_label = p.label_at + u32(load_sequence(p.sequence_at + 3u * batch + 2u));
  let last_state = 2u * labels;
  let out = p.out_at + batch * p.steps * p.states;
  for (var k = 0u; k < p.steps; k++) {
    let step = select(k, steps - 1u - k, backwards);
    let before = select(step - 1u, step + 1u, backwards);
    for (var i = lane; i <= last_state && k < steps; i += kLanes) {
      let s = select(i, last_state - i, backwards);
      let class_here = class_of(first_label, s);
      var sum = -inf_f();
      if (k == 0u) {
        sum = select(sum, 0.0, i < 2u);
      } else {
        let row = out + before * p.states;
        var one = -inf_f();
        var two = -inf_f();
        if (i > 0u) {
          one = load_out(row + select(s - 1u, s + 1u, backwards));
        }
        if (i > 1u) {
          let s2 = select(s - 2u, s + 2u, backwards);
          if (class_of(first_label, s2) != class_here) {
            two = load_out(row + s2);
          }
        }
        sum = log_sum_of_three_f(load_out(row + s), one, two);
      }
      let x = load_x(p.x_at + step * p.x_step + batch * p.x_batch + class_here * p.x_class);
      store_out(out + step * p.states + s, sum + x);
    }
    storageBarrier();
  }
  @if(has_loss) {
    if (lane == 0u) {
      var likelihood = select(-inf_f(), 0.0, labels == 0u);
      if (steps > 0u) {
        let row = out + (steps - 1u) * p.states;
        var other = -inf_f();
        if (labels > 0u) {
          other = load_out(row + last_state - 1u);
        }
        likelihood = log_sum_of_three_f(load_out(row + last_state), other, -inf_f());
      }
      store_loss(p.loss_at + batch, -likelihood);
    }
  }
}

fn class_of(first_label: u32, state: u32) -> u32 {
  if ((state & 1u) == 0u) {
    return p.blank;
  }
  return min(u32(load_label(first_label + state / 2u)), p.classes - 1u);
}

fn log_sum_of_three_f(a: f32, b: f32, c: f32) -> f32 {
  let greatest = max(max(a, b), c);
  if (is_neginf_f(greatest)) {
    return greatest;
  }
  return log_f(exp_f(a - greatest) + exp_f(b - greatest) + exp_f(c - greatest)) + greatest;
}
