// Pieces of the loss functions and of gradients that fit no line of a table.

fn smooth_l1_f(difference: f32, beta: f32) -> f32 {
  let size = abs(difference);
  return select(size - 0.5 * beta, 0.5 * size * size / beta, size < beta);
}

fn smooth_l1_grad_f(difference: f32, beta: f32) -> f32 {
  let inside = abs(difference) < beta || is_nan_f(difference);
  return select(sign_f(difference), difference / beta, inside);
}

fn huber_f(difference: f32, delta: f32) -> f32 {
  let size = abs(difference);
  return select(delta * (size - 0.5 * delta), 0.5 * size * size, size <= delta);
}

// Logarithms are cut off at -100, so that the loss stays finite.
fn binary_cross_entropy_f(x: f32, goal: f32) -> f32 {
  return (goal - 1.0) * max_f(log1p_f(-x), -100.0) - goal * max_f(log_f(x), -100.0);
}

// Gradient of logit at x. With eps < 0 nothing is clamped and x outside of [0, 1] has none.
fn logit_grad_f(gradient: f32, x: f32, eps: f32) -> f32 {
  if (eps < 0.0) {
    return select(gradient / (x * (1.0 - x)), nan_f(), x < 0.0 || x > 1.0);
  }
  return select(gradient / (x * (1.0 - x)), 0.0, x < eps || x > 1.0 - eps);
}
