// Inverses and logarithms of the normal distribution's functions. Coefficients:
// fit_coefficients.py.

// erfinv(x) / x as a function of w = -log(1 - x^2), as Giles, "Approximating the erfinv function"
// (2010); fits "erfinv", "erfinv_tail" and "ndtri_tail".
fn erfinv_ratio_f(w: f32) -> f32 {
  if (w < 5.0) {
    return (((((((2.85347899e-8 * w - 2.26968738e-7) * w - 4.55049486e-6) * w + 6.86823474e-5) * w -
               1.67219543e-4) * w - 0.00229786997) * w + 0.0115321399) * w + 0.232016651) * w +
           0.886226842;
  }
  let s = sqrt(w);
  if (s < 4.15) {
    let t = s - 3.0;
    return (((((((-1.40992404e-4 * t + 8.87781242e-5) * t + 0.00124294676) * t - 0.0036597048) * t +
               0.00579766232) * t - 0.007625436) * t + 0.00942896446) * t + 1.00167406) * t +
           2.83297717;
  }
  let t = s - 6.5;
  return ((((((-1.26454237e-7 * t + 8.78457988e-7) * t - 2.93123307e-6) * t + 1.01877511e-5) * t -
            1.05928679e-5) * t - 5.08627787e-4) * t + 1.00910929) * t + 6.36459286;
}

fn erfinv_f(x: f32) -> f32 {
  if (is_nan_f(x) || abs(x) > 1.0) {
    return nan_f();
  }
  if (abs(x) == 1.0) {
    return copysign_f(inf_f(), x);
  }
  return x * erfinv_ratio_f(-log_f((1.0 - x) * (1.0 + x)));
}

// With x = 2p - 1, 1 - x^2 is 4p(1 - p), which keeps its digits for small p.
fn ndtri_f(p: f32) -> f32 {
  if (is_nan_f(p) || p < 0.0 || p > 1.0) {
    return nan_f();
  }
  if (p == 0.0) {
    return -inf_f();
  }
  if (p == 1.0) {
    return inf_f();
  }
  let w = -log_f(p) - log_f(4.0 * (1.0 - p));
  return 1.41421356 * (2.0 * p - 1.0) * erfinv_ratio_f(max(w, 0.0));
}

fn log_ndtr_f(x: f32) -> f32 {
  if (is_nan_f(x)) {
    return x;
  }
  let t = 0.707106781 * x;
  if (x < -1.0) {
    return log_f(0.5 * erfcx_f(-t)) - t * t; // x * x would overflow first
  }
  return log1p_f(-0.5 * erfc_f(t));
}

fn entr_f(x: f32) -> f32 {
  if (is_nan_f(x)) {
    return x;
  }
  if (x < 0.0) {
    return -inf_f();
  }
  return select(-x * log_f(x), 0.0, x == 0.0);
}
