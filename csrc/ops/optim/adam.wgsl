// A step of Adam or AdamW.
//
// @operand parameter[]: out float
// @operand gradient[]: in like parameter optional
// @operand scaled_gradient[]: out like parameter optional
// @operand mean[]: out like parameter // of gradients
// @operand square[]: out like parameter // mean of their squares
// @operand max_square[]: out like parameter optional
// @operand step[]: numbers {f32} // of the tensor, this one included
// @operand lr: in {f32} optional // else `rate`
// @operand grad_scale: in {f32} optional
// @operand found_inf: in {f32} optional
// @const   amsgrad: bool
// @const   decoupled_decay: bool // AdamW
// @const   maximize: bool
// @require has_gradient != has_scaled_gradient
// @require has_scaled_gradient == has_grad_scale
// @require amsgrad == has_max_square

import package::foreach::lists::{main};
import package::optim::step::{gradient_of, learning_rate, skips};

struct Params {
  rate: f32,
  weight_decay: f32,
  eps: f32,
  beta1_rest: f32, // 1 - beta1
  beta2_rest: f32,
  log_beta1: f32,
  log_beta2: f32,
}

var<private> rates: AdamRates;

fn prepare(t: u32) {
  rates = adam_rates(learning_rate(), p.eps, step_of(t), p.log_beta1, p.log_beta2);
}

fn element(v: ptr<function, Elements>, t: u32) {
  if (skips()) {
    return;
  }
  var g = gradient_of(v);
  @if(decoupled_decay) {
    (*v).parameter -= learning_rate() * p.weight_decay * (*v).parameter;
  }
  @else {
    if (p.weight_decay != 0.0) {
      g += p.weight_decay * (*v).parameter;
    }
  }
  (*v).mean += (g - (*v).mean) * p.beta1_rest;
  (*v).square = (1.0 - p.beta2_rest) * (*v).square + p.beta2_rest * g * g;
  var square = (*v).square;
  @if(amsgrad) {
    square = max_f((*v).max_square, square);
    (*v).max_square = square;
  }
  (*v).parameter -= adam_step_f((*v).mean, square, rates);
}
