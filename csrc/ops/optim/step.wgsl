// What the steps of optimizers share: learning rate, gradient, and whether the step is left out.

fn learning_rate() -> f32 {
  @if(has_lr) return load_lr(p.lr_at);
  @else return p.rate;
}

// Whether to skip the step, because scaled gradients overflowed.
fn skips() -> bool {
  @if(has_found_inf) return load_found_inf(p.found_inf_at) == 1.0;
  @else return false;
}

// The gradient with the decay of weights added as an L2 penalty.
fn decayed_gradient_of(v: ptr<function, Elements>) -> f32 {
  let g = gradient_of(v);
  return select(g + p.weight_decay * (*v).parameter, g, p.weight_decay == 0.0);
}

// The gradient, negated if `maximize`. A scaled gradient is unscaled in memory too, as on other devices.
fn gradient_of(v: ptr<function, Elements>) -> f32 {
  @if(has_scaled_gradient) {
    (*v).scaled_gradient /= load_grad_scale(p.grad_scale_at);
    let g = (*v).scaled_gradient;
    return select(g, -g, maximize);
  }
  @else return select((*v).gradient, -(*v).gradient, maximize);
}
