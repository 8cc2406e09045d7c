// Error functions and activation functions with their derivatives. Coefficients:
// fit_coefficients.py.

// erf for |x| <= 1, fit "erf".
fn erf_reduced_f(x: f32) -> f32 {
  let t = x * x;
  return x * ((((((7.85385756e-5 * t - 8.01019248e-4) * t + 0.00518832755) * t - 0.0268538119) * t +
                0.112835851) * t - 0.376126258) * t + 1.12837917);
}

// (1 + 2x) exp(x^2) erfc(x) for x >= 1/2, t = (x - 2)/(x + 2): a polynomial, as Shepherd and
// Laframboise (1981), fit "erfcx".
fn erfcx_polynomial_f(t: f32) -> f32 {
  return ((((((((((-2.57820859e-5 * t + 3.23335713e-4) * t - 3.26197867e-4) * t -
                 0.00157246701) * t + 0.0012389166) * t + 0.00876257289) * t - 0.00803119579) * t -
             0.0542257094) * t + 0.164051252) * t - 0.166030106) * t - 0.0927638284) * t +
         1.27697838;
}

fn erfcx_reduced_f(x: f32) -> f32 {
  return div_f(erfcx_polynomial_f(1.0 - div_f(4.0, x + 2.0)), 1.0 + 2.0 * x);
}

// exp(sign x^2): the square is split so that its rounding error does not reach the exponential.
// What is left of it is small where the result is neither zero nor infinite.
fn exp_square_f(x: f32, sign: f32) -> f32 {
  if (abs(x) > 18.0) {
    return select(0.0, inf_f(), sign > 0.0);
  }
  let high = leading_bits_f(x);
  return exp_f(sign * high * high) * exp_reduced_f(sign * (x - high) * (x + high));
}

// erfc(x) for x >= 1/2. x is clamped, so that one reciprocal can replace both divisions of erfcx_reduced_f.
fn erfc_tail_f(x: f32) -> f32 {
  let bounded = min(x, 18.0);
  let sum = bounded + 2.0;
  let scale = 1.0 + 2.0 * bounded;
  let share = 1.0 / (sum * scale);
  let erfcx = erfcx_polynomial_f(1.0 - 4.0 * (scale * share)) * (sum * share);
  return exp_square_f(bounded, -1.0) * erfcx;
}

fn erf_f(x: f32) -> f32 {
  // fit "erf_tail": log(erfc(t)), of which 1 - erfc(t) needs few digits
  let t = min(abs(x), 4.1);
  let tail = (((((1.85574955e-4 * t - 0.00293961632) * t + 0.0218053534) * t - 0.10303744) * t -
               0.638225597) * t - 1.12704008) * t - 3.53708193e-4;
  let far = copysign_f(1.0 - exp_near_f(tail), x);
  // 1 < |x| <= infinity. The other value keeps NaN.
  return select(erf_reduced_f(x), far, magnitude_bits_f(x) - 0x3f800001u < 0x40000000u);
}

fn erfc_f(x: f32) -> f32 {
  if (is_nan_f(x)) {
    return x;
  }
  let a = abs(x);
  if (a <= 0.5) {
    return 1.0 - erf_reduced_f(x);
  }
  let tail = erfc_tail_f(a);
  return select(tail, 2.0 - tail, x < 0.0);
}

fn erfcx_f(x: f32) -> f32 {
  if (is_nan_f(x)) {
    return x;
  }
  if (x >= 0.5) {
    return erfcx_reduced_f(x);
  }
  if (x >= -0.5) {
    return exp_f(x * x) * (1.0 - erf_reduced_f(x));
  }
  return 2.0 * exp_square_f(x, 1.0) - erfcx_reduced_f(-x);
}

fn sigmoid_f(x: f32) -> f32 {
  let e = exp_falling_f(-abs(x));
  return select(1.0, e, signbit_f(x)) / (1.0 + e);
}

fn log_sigmoid_f(x: f32) -> f32 {
  return min(x, 0.0) - log1p_f(exp_falling_f(-abs(x)));
}

fn logit_f(x: f32) -> f32 {
  // Near 1/2 the odds are near 1, where log1p keeps the digits.
  if (x > 0.25 && x < 0.75) {
    return log1p_f((2.0 * x - 1.0) / (1.0 - x));
  }
  return log_f(div_f(x, 1.0 - x));
}

// A negative eps means none, as in PyTorch. One above 1/2 crosses the bounds: the lower one is
// asked first.
fn logit_eps_f(x: f32, eps: f32) -> f32 {
  let bounded = select(min_f(x, 1.0 - eps), eps, x < eps);
  return logit_f(select(x, bounded, eps >= 0.0));
}

fn silu_f(x: f32) -> f32 {
  return x * sigmoid_f(x);
}

fn silu_grad_f(x: f32) -> f32 {
  let s = sigmoid_f(x);
  return s * (1.0 + x * (1.0 - s));
}

// Standard normal distribution function and density.
fn ndtr_f(x: f32) -> f32 {
  return 0.5 * erfc_f(-0.707106781 * x);
}

fn normal_density_f(x: f32) -> f32 {
  return 0.398942280 * exp_square_f(0.707106781 * x, -1.0);
}

fn gelu_f(x: f32) -> f32 {
  return x * ndtr_f(x);
}

fn gelu_grad_f(x: f32) -> f32 {
  return ndtr_f(x) + x * normal_density_f(x);
}

// sqrt(2/pi) (x + 0.044715 x^3)
fn gelu_tanh_inner_f(x: f32) -> f32 {
  return 0.797884561 * (x + 0.044715 * x * x * x);
}

// (1 + tanh(u)) / 2 is sigmoid(2u), which does not cancel for negative u.
fn gelu_tanh_f(x: f32) -> f32 {
  return x * sigmoid_f(2.0 * gelu_tanh_inner_f(x));
}

fn gelu_tanh_grad_f(x: f32) -> f32 {
  let u = 2.0 * gelu_tanh_inner_f(x);
  let s = sigmoid_f(u);
  let slope = 1.59576912 * (1.0 + 0.134145 * min(x * x, 1e9));
  return s + x * s * sigmoid_f(-u) * slope;
}

fn softplus_f(x: f32, beta: f32, threshold: f32) -> f32 {
  let z = x * beta;
  if (z > threshold) {
    return x;
  }
  return log1p_f(exp_f(z)) / beta;
}

fn softplus_grad_f(x: f32, beta: f32, threshold: f32) -> f32 {
  let z = x * beta;
  return select(sigmoid_f(z), 1.0, z > threshold);
}

fn mish_f(x: f32) -> f32 {
  return x * tanh_f(softplus_f(x, 1.0, 20.0));
}

fn mish_grad_f(x: f32) -> f32 {
  let t = tanh_f(softplus_f(x, 1.0, 20.0));
  return t + x * sigmoid_f(x) * (1.0 - t * t);
}

// PyTorch's elu family: scale * (x or alpha * (exp(x * input_scale) - 1)).
fn elu_f(x: f32, alpha: f32, scale: f32, input_scale: f32) -> f32 {
  return select(x * scale, expm1_f(min(x, 0.0) * input_scale) * alpha * scale, x < 0.0);
}

// The derivative from the input, or from the output where is_result is set.
fn elu_grad_f(x: f32, alpha: f32, scale: f32, input_scale: f32, is_result: bool) -> f32 {
  if (x > 0.0) {
    return scale;
  }
  if (is_result) {
    return input_scale * (x + alpha * scale);
  }
  return input_scale * alpha * scale * exp_f(x * input_scale);
}

fn hardtanh_f(x: f32, low: f32, high: f32) -> f32 {
  return clamp_f(x, low, high);
}

fn hardsigmoid_f(x: f32) -> f32 {
  return clamp_f(x + 3.0, 0.0, 6.0) / 6.0;
}

fn hardsigmoid_grad_f(x: f32) -> f32 {
  return select(0.0, 0.166666667, x > -3.0 && x < 3.0);
}

fn hardswish_f(x: f32) -> f32 {
  return x * hardsigmoid_f(x);
}

fn hardswish_grad_f(x: f32) -> f32 {
  if (x <= -3.0) {
    return 0.0;
  }
  return select(x / 3.0 + 0.5, 1.0, x >= 3.0);
}
