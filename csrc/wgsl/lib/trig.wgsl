// Trigonometric and hyperbolic functions. Vulkan promises sin and cos only to 2^-11 and atan to
// 4096 units in the last place, so none of the built-ins is used. Coefficients:
// fit_coefficients.py.

struct Angle {
  rest: f32,
  quadrant: u32,
}

// x = quadrant * pi/2 + rest with |rest| <= pi/4, for finite x.
fn reduce_angle_f(x: f32) -> Angle {
  if (abs(x) >= 4096.0) {
    return reduce_large_angle_f(x);
  }
  return reduce_near_angle_f(x);
}

fn reduce_near_angle_f(x: f32) -> Angle {
  // Cody and Waite: pi/2 in three parts, so short that the first two products are exact.
  let bits = whole_bits_f(x * 0.636619772);
  let n = from_whole_bits_f(bits);
  let rest = ((x - n * 1.5703125) - n * 4.83751297e-4) - n * 7.54978995e-8;
  return Angle(rest, bits); // of which the last two bits count
}

// Payne and Hanek: multiplies the significand by those bits of 2/pi that decide the fraction.
fn reduce_large_angle_f(x: f32) -> Angle {
  var two_over_pi = array<u32, 7>(0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u,
                                  0xdb629599u, 0x3c439041u);
  let significand = mantissa_f(x) << 8u;
  let position = bitcast<u32>(biased_exponent_f(x) - 128);
  let word = position >> 5u;
  let shift = position & 31u;
  let w3 = two_over_pi[word + 3u];
  let w2 = two_over_pi[word + 2u];
  let w1 = two_over_pi[word + 1u];
  let high = shl_bits_l(vec2<u32>(w1, two_over_pi[word]), shift).y;
  let middle = shl_bits_l(vec2<u32>(w2, w1), shift).y;
  let low = shl_bits_l(vec2<u32>(w3, w2), shift).y;
  // The top 64 bits of the product modulo 4: two bits of quadrant, then the fraction.
  var product = mul_wide_u(significand, middle);
  product.y += significand * high;
  product = add_l(product, vec2<u32>(mul_wide_u(significand, low).y, 0u));
  let fraction = shl_bits_l(product, 2u);
  // Read as signed, the fraction is the distance to the nearest quadrant in units of 2^-64.
  let rest = f_from_l(fraction) * 8.51530395e-20;
  let quadrant = (product.y >> 30u) + (fraction.y >> 31u);
  if (signbit_f(x)) {
    return Angle(-rest, 0u - quadrant);
  }
  return Angle(rest, quadrant);
}

// sin and cos for |x| <= pi/4, fits "sin" and "cos".
fn sin_reduced_f(x: f32) -> f32 {
  let t = x * x;
  let y = x + x * t * (((2.72478446e-6 * t - 1.98400698e-4) * t + 0.00833333184) * t - 0.166666667);
  return with_sign_f(y, x);
}

// A sine of an angle up to a half turn has the angle's sign, a zero too, which the sum above loses.
fn with_sign_f(sine: f32, angle: f32) -> f32 {
  return bitcast<f32>(bitcast<u32>(sine) | (bitcast<u32>(angle) & 0x80000000u));
}

fn cos_reduced_f(x: f32) -> f32 {
  let t = x * x;
  return 1.0 - (0.5 * t - t * t * ((2.45462754e-5 * t - 0.00138882946) * t + 0.0416666646));
}

fn sin_angle_f(angle: Angle) -> f32 {
  let odd = (angle.quadrant & 1u) == 1u;
  let value = select(sin_reduced_f(angle.rest), cos_reduced_f(angle.rest), odd);
  return select(value, -value, (angle.quadrant & 2u) != 0u);
}

fn cos_angle_f(angle: Angle) -> f32 {
  return sin_angle_f(Angle(angle.rest, angle.quadrant + 1u));
}

// Whether an angle takes more than the usual reduction: |x| >= 4096, infinity, NaN.
fn is_far_angle_f(x: f32) -> bool {
  return magnitude_bits_f(x) >= 0x45800000u;
}

// For |x| < 4096: by half turns, which take one polynomial where quarter turns take two. The parts of pi are those of
// pi/2 doubled. Fit "sin_half_turn".
fn sin_near_f(x: f32) -> f32 {
  let bits = whole_bits_f(x * 0.318309886);
  let n = from_whole_bits_f(bits);
  let r = ((x - n * 3.140625) - n * 9.67502594e-4) - n * 1.50995799e-7;
  let t = r * r;
  let tail = (((-2.40738233e-8 * t + 2.75361542e-6) * t - 1.98410819e-4) * t + 0.00833333275) * t - 0.166666667;
  return bitcast<f32>(bitcast<u32>(with_sign_f(r + r * t * tail, r)) ^ (bits << 31u));
}

fn sin_f(x: f32) -> f32 {
  if (!is_far_angle_f(x)) {
    return sin_near_f(x);
  }
  if (!is_finite_f(x)) {
    return nan_f();
  }
  return sin_angle_f(reduce_large_angle_f(x));
}

fn cos_f(x: f32) -> f32 {
  if (!is_far_angle_f(x)) {
    return cos_angle_f(reduce_near_angle_f(x));
  }
  if (!is_finite_f(x)) {
    return nan_f();
  }
  return cos_angle_f(reduce_large_angle_f(x));
}

fn tan_f(x: f32) -> f32 {
  if (!is_finite_f(x)) {
    return nan_f();
  }
  let angle = reduce_angle_f(x);
  let s = sin_reduced_f(angle.rest);
  let c = cos_reduced_f(angle.rest);
  let odd = (angle.quadrant & 1u) == 1u;
  return select(s, -c, odd) / select(c, s, odd);
}

// sin(pi x) for finite x, with an exact reduction.
fn sinpi_f(x: f32) -> f32 {
  let period = x - 2.0 * round(0.5 * x);
  let n = round(2.0 * period);
  return sin_angle_f(Angle((period - 0.5 * n) * 3.14159265, bitcast<u32>(i32(n))));
}

fn sinc_f(x: f32) -> f32 {
  let angle = 3.14159265 * x;
  if (x == 0.0) {
    return 1.0;
  }
  return sin_f(angle) / angle;
}

// atan for |x| <= 1, fit "atan".
fn atan_reduced_f(x: f32) -> f32 {
  let t = x * x;
  let tail = (((((((-0.00242352807 * t + 0.0136557804) * t - 0.0361156718) * t + 0.0627119391) * t -
                 0.0866694585) * t + 0.110363931) * t - 0.142789081) * t + 0.199997562) * t -
             0.333333319;
  return x + x * t * tail;
}

fn atan_f(x: f32) -> f32 {
  if (is_inf_f(x)) {
    return copysign_f(1.57079633, x);
  }
  if (abs(x) <= 1.0) {
    return copysign_f(atan_reduced_f(x), x); // -0 stays
  }
  return copysign_f(1.57079633, x) - atan_reduced_f(div_f(1.0, x));
}

fn atan2_f(y: f32, x: f32) -> f32 {
  if (is_nan_f(x) || is_nan_f(y)) {
    return nan_f();
  }
  let small = min(abs_f(x), abs_f(y));
  let large = max(abs_f(x), abs_f(y));
  // Two zeros count as the angle 0, two infinities as 45 degrees.
  var angle = 0.0;
  if (is_inf_f(small)) {
    angle = 0.785398163;
  } else if (magnitude_bits_f(large) != 0u && !is_inf_f(large)) {
    angle = atan_reduced_f(div_f(small, large));
  }
  if (abs_f(y) > abs_f(x)) {
    angle = 1.57079633 - angle;
  }
  if (signbit_f(x)) {
    angle = 3.14159265 - angle;
  }
  return copysign_f(angle, y);
}

// asin for |x| <= 1/2, fit "asin".
fn asin_reduced_f(x: f32) -> f32 {
  let t = x * x;
  return x + x * t * ((((0.03819637 * t + 0.0264993262) * t + 0.0450099096) * t +
                      0.0749881313) * t + 0.166666727);
}

fn asin_f(x: f32) -> f32 {
  if (is_nan_f(x) || abs(x) > 1.0) {
    return nan_f();
  }
  if (abs(x) <= 0.5) {
    return asin_reduced_f(x);
  }
  return copysign_f(1.57079633 - 2.0 * asin_reduced_f(sqrt_f(0.5 - 0.5 * abs(x))), x);
}

fn acos_f(x: f32) -> f32 {
  if (is_nan_f(x) || abs(x) > 1.0) {
    return nan_f();
  }
  if (abs(x) <= 0.5) {
    return 1.57079633 - asin_reduced_f(x);
  }
  let angle = 2.0 * asin_reduced_f(sqrt_f(0.5 - 0.5 * abs(x)));
  return select(angle, 3.14159265 - angle, x < 0.0);
}

// sinh for |x| <= 1, fit "sinh".
fn sinh_reduced_f(x: f32) -> f32 {
  let t = x * x;
  return x + x * t * (((2.80614168e-6 * t + 1.98381227e-4) * t + 0.0083333396) * t + 0.166666666);
}

fn sinh_f(x: f32) -> f32 {
  if (abs(x) <= 1.0) {
    return sinh_reduced_f(x);
  }
  return copysign_f(1.0, x) * (half_exp_f(abs(x)) - 0.5 * exp_f(-abs(x)));
}

fn cosh_f(x: f32) -> f32 {
  return half_exp_f(abs(x)) + 0.5 * exp_f(-abs(x));
}

// exp(x) / 2, which is finite a little longer than exp(x).
fn half_exp_f(x: f32) -> f32 {
  if (x < 88.0) {
    return 0.5 * exp_f(x);
  }
  let root = exp_f(0.5 * x);
  return 0.5 * root * root;
}

fn tanh_f(x: f32) -> f32 {
  // fit "tanh": (tanh(x) - x) / x^3
  let t = x * x;
  let tail = (((-0.00609693111 * t + 0.0209973488) * t - 0.0538509511) * t + 0.133327701) * t -
             0.333333289;
  let e = exp_near_f(min(2.0 * abs(x), 40.0));
  let value = select(1.0 - 2.0 / (e + 1.0), x + x * t * tail, abs(x) < 0.625);
  return select(copysign_f(value, x), x, is_nan_f(x)); // -0 stays
}

fn asinh_f(x: f32) -> f32 {
  let a = abs(x);
  if (a > 4096.0) {
    return copysign_f(log_f(a) + 0.693147181, x);
  }
  let square = a * a;
  return copysign_f(log1p_f(a + square / (1.0 + sqrt(1.0 + square))), x);
}

fn acosh_f(x: f32) -> f32 {
  if (is_nan_f(x) || x < 1.0) {
    return nan_f();
  }
  if (x > 4096.0) {
    return log_f(x) + 0.693147181;
  }
  let t = x - 1.0;
  return log1p_f(t + sqrt_f(2.0 * t + t * t));
}

fn atanh_f(x: f32) -> f32 {
  if (is_nan_f(x) || abs(x) > 1.0) {
    return nan_f();
  }
  let a = abs(x);
  return copysign_f(0.5 * log1p_f(div_f(2.0 * a, 1.0 - a)), x);
}
