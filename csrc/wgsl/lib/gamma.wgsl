// The gamma function's family. Coefficients: fit_coefficients.py; expansions: NIST Digital Library
// of Mathematical Functions (DLMF), chapters 5, 8 and 25.

fn is_whole_f(x: f32) -> bool {
  return abs(x) >= 8388608.0 || x == trunc(x);
}

// log gamma for x > 0.
fn lgamma_positive_f(x: f32) -> f32 {
  if (x >= 8.0) {
    // Stirling's series (DLMF 5.11.1)
    let inverse = div_f(1.0, x);
    let t = inverse * inverse;
    let series = inverse * ((7.93650794e-4 * t - 0.00277777778) * t + 0.0833333333);
    return (x - 0.5) * (log_f(x) - 1.0) + (0.418938533 + series);
  }
  // Recurrence to [1, 3].
  var shifted = x;
  var product = 1.0;
  while (shifted > 3.0) {
    shifted -= 1.0;
    product *= shifted;
  }
  var correction = 0.0;
  if (x < 1.0) {
    shifted = x + 1.0;
    correction = -log_f(x);
  } else if (x > 3.0) {
    correction = log_f(product);
  }
  // fit "lgamma": lgamma(x) / ((x - 1)(x - 2)) in x - 2
  let t = shifted - 2.0;
  let p = (((((((((-3.87440883e-5 * t + 7.81937383e-5) * t - 5.23942047e-5) * t +
                 1.30587349e-4) * t - 4.25594213e-4) * t + 9.44335874e-4) * t - 0.00210205292) * t +
              0.00499154699) * t - 0.0123849764) * t + 0.0329656274) * t - 0.100317273;
  // Near x = 1 from below the factor is x itself, which x + 1 - 1 would round.
  let factor = select(t + 1.0, x, x < 1.0);
  return correction + t * factor * (t * p + 0.422784326);
}

fn lgamma_f(x: f32) -> f32 {
  if (is_nan_f(x)) {
    return x;
  }
  if (is_inf_f(x) || (x <= 0.0 && is_whole_f(x))) {
    return inf_f();
  }
  if (x > 0.0) {
    return lgamma_positive_f(x);
  }
  if (x > -1e-9) {
    return -log_f(-x);
  }
  // Reflection (DLMF 5.5.3)
  return 1.14472989 - log_f(abs(x * sinpi_f(x))) - lgamma_positive_f(-x);
}

// pi cot(pi x), with an exact reduction.
fn pi_cot_pi_f(x: f32) -> f32 {
  return 3.14159265 / tan_f(3.14159265 * (x - round(x)));
}

fn digamma_f(x: f32) -> f32 {
  if (magnitude_bits_f(x) == 0u) {
    return copysign_f(inf_f(), -x);
  }
  if (is_posinf_f(x)) {
    return x;
  }
  if (is_nan_f(x) || (x < 0.0 && is_whole_f(x))) {
    return nan_f();
  }
  var shifted = x;
  var sum = 0.0;
  if (x < 0.0) {
    shifted = 1.0 - x;
    sum = -pi_cot_pi_f(x);
  }
  while (shifted < 8.0) {
    sum -= 1.0 / shifted;
    shifted += 1.0;
  }
  // DLMF 5.11.2
  let inverse = div_f(1.0, shifted);
  let t = inverse * inverse;
  let series = t * ((0.00396825397 * t - 0.00833333333) * t + 0.0833333333);
  return sum + (log_f(shifted) - 0.5 * inverse - series);
}

fn trigamma_f(x: f32) -> f32 {
  if (is_nan_f(x)) {
    return x;
  }
  var shifted = x;
  var sum = 0.0;
  var sign = 1.0;
  if (x < 0.5) {
    // At the poles below zero PyTorch takes the sine of the rounded product, and stays finite.
    let s = select(sinpi_f(x), sin_f(3.14159265 * x), is_whole_f(x));
    sum = div_f(div_f(9.86960440, s), s);
    shifted = 1.0 - x;
    sign = -1.0;
  }
  while (shifted < 8.0) {
    sum += sign / (shifted * shifted);
    shifted += 1.0;
  }
  // DLMF 5.15.8
  let inverse = div_f(1.0, shifted);
  let t = inverse * inverse;
  let series = ((0.0238095238 * t - 0.0333333333) * t + 0.166666667) * t;
  return sum + sign * inverse * (1.0 + 0.5 * inverse + series);
}

// Hurwitz zeta for x > 1 and q > 0 by Euler and Maclaurin (DLMF 25.11.28, ten terms ahead of the
// tail).
fn zeta_positive_f(x: f32, q: f32) -> f32 {
  var a = q;
  var power = pow_f(a, -x);
  var sum = power;
  for (var i = 0; i < 9; i++) {
    a += 1.0;
    power = pow_f(a, -x);
    sum += power;
    if (power <= 3e-8 * sum) {
      return sum;
    }
  }
  sum += power * (a / (x - 1.0) - 0.5);
  // B_2k / (2k)! with x (x + 1) ... (x + 2k - 2) a^(-x - 2k + 1)
  var coefficients = array<f32, 6>(0.0833333333, -0.00138888889, 3.30687831e-5, -8.26719577e-7,
                                   2.08767570e-8, -5.28419014e-10);
  var factor = power * x / a;
  for (var k = 0; k < 6; k++) {
    let term = coefficients[k] * factor;
    sum += term;
    if (abs(term) <= 3e-8 * sum) {
      return sum;
    }
    let j = f32(2 * k);
    factor *= (x + j + 1.0) / a * ((x + j + 2.0) / a);
  }
  return sum;
}

fn zeta_f(x: f32, q: f32) -> f32 {
  if (x == 1.0 || (x >= 1.0 && q <= 0.0 && is_whole_f(q))) {
    return inf_f();
  }
  if (is_nan_f(x) || is_nan_f(q) || x < 1.0 || (q <= 0.0 && !is_whole_f(x))) {
    return nan_f();
  }
  if (q > 0.0) {
    return zeta_positive_f(x, q);
  }
  // The terms left of zero are a difference of two sums to its right, so that their number does
  // not matter.
  let left = zeta_positive_f(x, ceil(q) - q) - zeta_positive_f(x, 1.0 - q);
  let odd = abs(x) < 16777216.0 && (i32(x) & 1) == 1;
  return zeta_positive_f(x, q - floor(q)) + select(left, -left, odd);
}

fn polygamma_f(order: i32, x: f32) -> f32 {
  if (order == 0) {
    return digamma_f(x);
  }
  if (order == 1) {
    return trigamma_f(x);
  }
  var factorial = 1.0;
  for (var k = 2; k <= min(order, 35); k++) { // 35! is infinite
    factorial *= f32(k);
  }
  let value = factorial * zeta_f(f32(order + 1), x);
  return select(-value, value, (order & 1) == 1);
}

// x^a e^-x / gamma(a + 1), from deviations where a is large so that large terms do not cancel.
fn gamma_density_f(a: f32, x: f32) -> f32 {
  if (a < 4.0) {
    return exp_precise_f(a * log_f(x) - x - lgamma_positive_f(a + 1.0));
  }
  let inverse = 1.0 / a;
  let t = inverse * inverse;
  let stirling = inverse * ((7.93650794e-4 * t - 0.00277777778) * t + 0.0833333333);
  return exp_precise_f(-a * half_eta_square_f(a, x) - stirling) * inverseSqrt(6.28318531 * a);
}

// m - log(1 + m) with m = (x - a) / a.
fn half_eta_square_f(a: f32, x: f32) -> f32 {
  let m = (x - a) / a;
  if (m > -0.29 && m < 0.41) {
    return log1p_deficit_f(m);
  }
  return m - log_f(div_f(x, a));
}

// Uniform expansion near x = a (Temme; DLMF 8.12.3 and 8.12.4): the upper function Q.
fn igammac_uniform_f(a: f32, x: f32) -> f32 {
  let half_square = half_eta_square_f(a, x);
  let eta = copysign_f(sqrt_f(2.0 * half_square), x - a);
  // fits "temme0", "temme1", "temme2"
  let c0 = ((((((((7.63324534e-7 * eta - 2.48453024e-6) * eta - 1.95571094e-6) * eta +
                 4.00880712e-5) * eta - 1.79021295e-4) * eta + 3.52195483e-4) * eta +
              0.00115752476) * eta - 0.0148147005) * eta + 0.0833333192) * eta - 0.333333337;
  let c1 = (((((-2.12945995e-5 * eta + 2.01979627e-5) * eta + 2.08400767e-4) * eta -
              0.00100499584) * eta + 0.00264359158) * eta - 0.00346997411) * eta - 0.0018514476;
  let c2 = (((-1.10900816e-4 * eta + 1.13024609e-4) * eta + 7.47105418e-4) * eta - 0.00272636893) *
           eta + 0.00414084972;
  let series = c0 + (c1 + c2 / a) / a;
  let tail = exp_precise_f(-a * half_square) * inverseSqrt(6.28318531 * a) * series;
  return 0.5 * erfc_f(eta * sqrt(0.5 * a)) + tail;
}

// The lower function P by its power series (DLMF 8.11.4).
fn igamma_series_f(a: f32, x: f32) -> f32 {
  var term = 1.0;
  var sum = 1.0;
  for (var k = 1; k < 300; k++) {
    term *= x / (a + f32(k));
    sum += term;
    if (term <= 3e-8 * sum) {
      break;
    }
  }
  return sum * gamma_density_f(a, x);
}

// The upper function Q by its continued fraction (DLMF 8.9.2, contracted), evaluated by Lentz's
// method as modified by Thompson and Barnett.
fn igammac_fraction_f(a: f32, x: f32) -> f32 {
  var b = x + 1.0 - a;
  var c = 1e30;
  var d = 1.0 / b;
  var fraction = d;
  for (var k = 1; k < 300; k++) {
    let numerator = f32(k) * (a - f32(k));
    b += 2.0;
    d = 1.0 / (numerator * d + b);
    c = b + numerator / c;
    fraction *= c * d;
    if (abs(c * d - 1.0) <= 6e-8) {
      break;
    }
  }
  return fraction * a * gamma_density_f(a, x);
}

// Whichever of P (lower) and Q is computed directly.
struct IncompleteGamma {
  value: f32,
  is_lower: bool,
}

fn incomplete_gamma_f(a: f32, x: f32) -> IncompleteGamma {
  let both_zero = a == 0.0 && x == 0.0;
  if (a < 0.0 || x < 0.0 || both_zero || (is_inf_f(a) && is_inf_f(x))) {
    return IncompleteGamma(nan_f(), true);
  }
  // Decided before NaN, as in PyTorch: either argument can settle the result alone.
  if (x == 0.0 || is_inf_f(a)) {
    return IncompleteGamma(0.0, true);
  }
  if ((a == 0.0 && !is_nan_f(x)) || is_inf_f(x)) {
    return IncompleteGamma(1.0, true);
  }
  if (is_nan_f(a) || is_nan_f(x)) {
    return IncompleteGamma(nan_f(), true);
  }
  if (a >= 20.0 && half_eta_square_f(a, x) < 0.9) {
    return IncompleteGamma(igammac_uniform_f(a, x), false);
  }
  if (x <= 1.1 || x <= a) {
    return IncompleteGamma(igamma_series_f(a, x), true);
  }
  return IncompleteGamma(igammac_fraction_f(a, x), false);
}

fn igamma_f(a: f32, x: f32) -> f32 {
  let part = incomplete_gamma_f(a, x);
  return select(1.0 - part.value, part.value, part.is_lower);
}

fn igammac_f(a: f32, x: f32) -> f32 {
  let part = incomplete_gamma_f(a, x);
  return select(part.value, 1.0 - part.value, part.is_lower);
}
