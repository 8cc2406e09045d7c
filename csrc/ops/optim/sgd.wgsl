// A step of stochastic gradient descent.
//
// @operand parameter[]: out float
// @operand gradient[]: in like parameter optional
// @operand scaled_gradient[]: out like parameter optional
// @operand buffer[]: out like parameter optional // the momentum
// @operand lr: in {f32} optional // else `rate`
// @operand grad_scale: in {f32} optional
// @operand found_inf: in {f32} optional
// @const   nesterov: bool
// @const   first_step: bool // the buffer holds nothing yet
// @const   maximize: bool
// @require has_gradient != has_scaled_gradient
// @require has_scaled_gradient == has_grad_scale
// @require has_buffer || !nesterov

import package::foreach::lists::{main};
import package::optim::step::{decayed_gradient_of, learning_rate, skips};

struct Params {
  rate: f32,
  weight_decay: f32,
  momentum: f32,
  dampening_rest: f32, // 1 - dampening
}

fn prepare(t: u32) {}

fn element(v: ptr<function, Elements>, t: u32) {
  if (skips()) {
    return;
  }
  var g = decayed_gradient_of(v);
  @if(has_buffer) {
    var buffer = g;
    @if(!first_step) buffer = p.momentum * (*v).buffer + p.dampening_rest * g;
    (*v).buffer = buffer;
    g = select(buffer, g + p.momentum * buffer, nesterov);
  }
  (*v).parameter -= learning_rate() * g;
}
