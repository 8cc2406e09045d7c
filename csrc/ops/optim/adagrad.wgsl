// A step of Adagrad.
//
// @operand parameter[]: out float
// @operand gradient[]: in like parameter optional
// @operand scaled_gradient[]: out like parameter optional
// @operand sum[]: out like parameter // of squared gradients
// @operand step[]: numbers {f32} // of the tensor, this one included
// @operand lr: in {f32} optional // else `rate`
// @operand grad_scale: in {f32} optional
// @operand found_inf: in {f32} optional
// @const   maximize: bool
// @require has_gradient != has_scaled_gradient
// @require has_scaled_gradient == has_grad_scale

import package::foreach::lists::{main};
import package::optim::step::{decayed_gradient_of, learning_rate, skips};

struct Params {
  rate: f32,
  weight_decay: f32,
  eps: f32,
  rate_decay: f32,
}

var<private> rate: f32;

fn prepare(t: u32) {
  rate = adagrad_rate_f(learning_rate(), p.rate_decay, step_of(t));
}

fn element(v: ptr<function, Elements>, t: u32) {
  if (skips()) {
    return;
  }
  let g = decayed_gradient_of(v);
  (*v).sum += g * g;
  (*v).parameter -= rate * div_f(g, sqrt_f((*v).sum) + p.eps);
}
