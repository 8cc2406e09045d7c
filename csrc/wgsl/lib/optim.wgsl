// Steps of optimizers, for one element.

struct AdamRates {
  size: f32, // learning rate over the first bias correction
  root: f32, // square root of the second bias correction
  eps: f32,
}

// 1 - beta^step = -expm1(step * log(beta)) keeps its digits where beta is close to 1.
fn adam_rates(lr: f32, eps: f32, step: f32, log_beta1: f32, log_beta2: f32) -> AdamRates {
  return AdamRates(-lr / expm1_f(step * log_beta1), sqrt_f(-expm1_f(step * log_beta2)), eps);
}

fn adam_step_f(mean: f32, square: f32, rates: AdamRates) -> f32 {
  return rates.size * div_f(mean, div_f(sqrt_f(square), rates.root) + rates.eps);
}

fn adagrad_rate_f(lr: f32, decay: f32, step: f32) -> f32 {
  return lr / (1.0 + (step - 1.0) * decay);
}
