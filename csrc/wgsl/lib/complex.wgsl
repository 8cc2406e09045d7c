// Complex functions on vec2<f32>(real, imaginary), branch cuts and signed zeros as in C99. The
// inverse functions follow Kahan, "Branch cuts for complex elementary functions" (1987).

fn mul_c(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
  return vec2<f32>(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

// Signs are bits: a floating point negation may flush a denormal number to 0.
fn conj_c(a: vec2<f32>) -> vec2<f32> {
  return bitcast<vec2<f32>>(bitcast<vec2<u32>>(a) ^ vec2<u32>(0u, 0x80000000u));
}

fn neg_c(a: vec2<f32>) -> vec2<f32> {
  return bitcast<vec2<f32>>(bitcast<vec2<u32>>(a) ^ vec2<u32>(0x80000000u));
}

// i a
fn mul_i_c(a: vec2<f32>) -> vec2<f32> {
  return vec2<f32>(-a.y, a.x);
}

// -i a
fn div_i_c(a: vec2<f32>) -> vec2<f32> {
  return vec2<f32>(a.y, -a.x);
}

// Smith's division (1962): no square that could overflow.
fn div_c(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
  if (magnitude_bits_f(b.x) == 0u && magnitude_bits_f(b.y) == 0u) {
    return vec2<f32>(div_f(a.x, abs_f(b.x)), div_f(a.y, abs_f(b.y)));
  }
  if (abs(b.x) >= abs(b.y)) {
    let ratio = div_f(b.y, b.x);
    let scale = b.x + b.y * ratio;
    return vec2<f32>(div_f(a.x + a.y * ratio, scale), div_f(a.y - a.x * ratio, scale));
  }
  let ratio = div_f(b.x, b.y);
  let scale = b.x * ratio + b.y;
  return vec2<f32>(div_f(a.x * ratio + a.y, scale), div_f(a.y * ratio - a.x, scale));
}

fn reciprocal_c(a: vec2<f32>) -> vec2<f32> {
  return div_c(vec2<f32>(1.0, 0.0), a);
}

fn abs_c(a: vec2<f32>) -> f32 {
  return hypot_f(a.x, a.y);
}

fn angle_c(a: vec2<f32>) -> f32 {
  return atan2_f(a.y, a.x);
}

fn polar_c(magnitude: f32, angle: f32) -> vec2<f32> {
  return vec2<f32>(magnitude * cos_f(angle), magnitude * sin_f(angle));
}

fn sgn_c(a: vec2<f32>) -> vec2<f32> {
  if (is_nan_c(a)) { // max() may return the operand that is a number
    return vec2<f32>(nan_f(), nan_f());
  }
  let large = max(abs(a.x), abs(a.y));
  if (large == 0.0) {
    return vec2<f32>(0.0, 0.0);
  }
  // Scaled first: the magnitude of a finite number may overflow.
  let scaled = vec2<f32>(div_f(a.x, large), div_f(a.y, large));
  return scaled * rsqrt_f(dot(scaled, scaled));
}

fn eq_c(a: vec2<f32>, b: vec2<f32>) -> bool {
  return all(a == b);
}

fn is_nan_c(a: vec2<f32>) -> bool {
  return is_nan_f(a.x) || is_nan_f(a.y);
}

fn is_inf_c(a: vec2<f32>) -> bool {
  return is_inf_f(a.x) || is_inf_f(a.y);
}

fn is_finite_c(a: vec2<f32>) -> bool {
  return is_finite_f(a.x) && is_finite_f(a.y);
}

// a b with 0 wherever one factor is 0, even if the other overflowed.
fn damped_product_f(a: f32, b: f32) -> f32 {
  return select(a * b, 0.0, magnitude_bits_f(a) == 0u || magnitude_bits_f(b) == 0u);
}

// factor e^x (cos y, sin y). The exponential is applied in two halves, because its product with
// the sine or cosine may be finite where the exponential overflows.
fn scaled_exp_c(a: vec2<f32>, factor: f32) -> vec2<f32> {
  if (!is_finite_f(a.y)) { // no angle
    if (is_neginf_f(a.x)) {
      return vec2<f32>(0.0, 0.0);
    }
    return vec2<f32>(select(nan_f(), inf_f(), is_posinf_f(a.x)), nan_f());
  }
  let half = exp_f(0.5 * a.x);
  if (half == 0.0) {
    return vec2<f32>(0.0, 0.0);
  }
  if (abs(a.x) < 80.0) {
    return factor * exp_f(a.x) * vec2<f32>(cos_f(a.y), sin_f(a.y));
  }
  let direction = factor * vec2<f32>(cos_f(a.y), sin_f(a.y));
  return vec2<f32>(damped_product_f(damped_product_f(direction.x, half), half),
                   damped_product_f(damped_product_f(direction.y, half), half));
}

fn exp_c(a: vec2<f32>) -> vec2<f32> {
  if (magnitude_bits_f(a.y) == 0u) {
    return vec2<f32>(exp_f(a.x), a.y);
  }
  return scaled_exp_c(a, 1.0);
}

fn exp2_c(a: vec2<f32>) -> vec2<f32> {
  return exp_c(0.693147181 * a);
}

fn expm1_c(a: vec2<f32>) -> vec2<f32> {
  let grown = exp_c(a);
  // The real exponential alone would overflow before its product with the cosine does.
  if (a.x > 20.0) {
    return vec2<f32>(grown.x - 1.0, grown.y);
  }
  let half_sine = sin_f(0.5 * a.y);
  let growth = expm1_f(a.x);
  return vec2<f32>(growth * cos_f(a.y) - 2.0 * half_sine * half_sine, grown.y);
}

// log |a|, without squares that could overflow.
fn log_abs_c(a: vec2<f32>) -> f32 {
  let large = max(abs(a.x), abs(a.y));
  let small = min(abs(a.x), abs(a.y));
  if (is_inf_c(a)) { // also if the other is NaN
    return inf_f();
  }
  if (is_nan_c(a)) {
    return nan_f();
  }
  if (large == 0.0) {
    return log_f(large);
  }
  let ratio = div_f(small, large);
  return log_f(large) + 0.5 * log1p_f(ratio * ratio);
}

fn log_c(a: vec2<f32>) -> vec2<f32> {
  return vec2<f32>(log_abs_c(a), angle_c(a));
}

fn log2_c(a: vec2<f32>) -> vec2<f32> {
  return log_c(a) * 1.44269502;
}

fn log10_c(a: vec2<f32>) -> vec2<f32> {
  return log_c(a) * 0.434294492;
}

fn log1p_c(a: vec2<f32>) -> vec2<f32> {
  let shifted = vec2<f32>(1.0 + a.x, a.y);
  if (abs(a.x) < 0.5 && abs(a.y) < 0.5) {
    return vec2<f32>(0.5 * log1p_f(2.0 * a.x + (a.x * a.x + a.y * a.y)), angle_c(shifted));
  }
  return log_c(shifted);
}

// log(exp(a) + exp(b)). If both real parts are -inf, the result is b: both exponentials are 0, which has no angle.
fn logaddexp_c(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
  if (is_nan_c(a) || is_nan_c(b)) {
    return vec2<f32>(nan_f(), nan_f());
  }
  let ordered = a.x < b.x;
  let low = select(b, a, ordered);
  let high = select(a, b, ordered);
  if (is_inf_f(low.x) && bitcast<u32>(low.x) == bitcast<u32>(high.x)) {
    if (signbit_f(low.x)) {
      return low;
    }
    return log_c(exp_c(low) + exp_c(high));
  }
  return log1p_c(exp_c(low - high)) + high;
}

fn sqrt_c(a: vec2<f32>) -> vec2<f32> {
  if (is_inf_f(a.y)) {
    return vec2<f32>(inf_f(), a.y);
  }
  // sqrt((|x| + |a|) / 2), scaled so that the sum cannot overflow.
  let t = 2.0 * sqrt_f(0.125 * abs(a.x) + abs_c(0.125 * a));
  if (t == 0.0) {
    return vec2<f32>(0.0, a.y);
  }
  if (signbit_f(a.x)) {
    return vec2<f32>(abs(div_f(0.5 * a.y, t)), copysign_f(t, a.y));
  }
  return vec2<f32>(t, div_f(0.5 * a.y, t));
}

fn rsqrt_c(a: vec2<f32>) -> vec2<f32> {
  return reciprocal_c(sqrt_c(a));
}

// |a|^b.x and e^(-b.y angle) are taken apart, so that a large real power keeps its digits.
fn pow_c(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
  if (magnitude_bits_f(a.x) == 0u && magnitude_bits_f(a.y) == 0u) {
    return select(vec2<f32>(nan_f(), nan_f()), vec2<f32>(0.0, 0.0), b.x > 0.0);
  }
  let angle = angle_c(a);
  let magnitude = pow_f(abs_c(a), b.x) * exp_f(-b.y * angle);
  let turned = b.x * angle + damped_product_f(b.y, log_abs_c(a));
  return vec2<f32>(damped_product_f(magnitude, cos_f(turned)),
                   damped_product_f(magnitude, sin_f(turned)));
}

fn sigmoid_c(a: vec2<f32>) -> vec2<f32> {
  // Below -20 the next term of the series, e^2a, is lost in rounding.
  if (a.x < -20.0) {
    return exp_c(a);
  }
  var denominator = vec2<f32>(1.0, 0.0) + exp_c(-a);
  if (abs(a.x) < 1.0) {
    // Near the poles, the odd multiples of i pi, the sum of 1 and the exponential's real part would cancel.
    let half_cosine = cos_f(0.5 * a.y);
    denominator.x = expm1_f(-a.x) * cos_f(a.y) + 2.0 * half_cosine * half_cosine;
  }
  return reciprocal_c(denominator);
}

// From 20 on sinh and cosh of the real part are both half its exponential.
fn sinh_c(a: vec2<f32>) -> vec2<f32> {
  if (abs(a.x) > 20.0) {
    return scaled_exp_c(vec2<f32>(abs(a.x), a.y), 0.5) * vec2<f32>(sign(a.x), 1.0);
  }
  return vec2<f32>(sinh_f(a.x) * cos_f(a.y), cosh_f(a.x) * sin_f(a.y));
}

fn cosh_c(a: vec2<f32>) -> vec2<f32> {
  if (abs(a.x) > 20.0) {
    return scaled_exp_c(vec2<f32>(abs(a.x), a.y), 0.5) * vec2<f32>(1.0, sign(a.x));
  }
  return vec2<f32>(cosh_f(a.x) * cos_f(a.y), sinh_f(a.x) * sin_f(a.y));
}

fn tanh_c(a: vec2<f32>) -> vec2<f32> {
  if (is_inf_f(a.x) && !is_finite_f(a.y)) {
    return vec2<f32>(copysign_f(1.0, a.x), 0.0);
  }
  if (abs(a.x) > 12.0) {
    let decay = exp_f(-2.0 * abs(a.x));
    return vec2<f32>(copysign_f(1.0, a.x), 4.0 * sin_f(a.y) * cos_f(a.y) * decay);
  }
  // Multiplied by cos^2 y, so that the pole of tan y does not appear.
  let c = cos_f(a.y);
  let s = sinh_f(a.x);
  let denominator = c * c + s * s;
  return vec2<f32>(div_f(s * cosh_f(a.x), denominator), div_f(sin_f(a.y) * c, denominator));
}

fn sin_c(a: vec2<f32>) -> vec2<f32> {
  return div_i_c(sinh_c(mul_i_c(a)));
}

fn sinc_c(a: vec2<f32>) -> vec2<f32> {
  if (magnitude_bits_f(a.x) == 0u && magnitude_bits_f(a.y) == 0u) {
    return vec2<f32>(1.0, 0.0);
  }
  let angle = 3.14159265 * a;
  return div_c(sin_c(angle), angle);
}

fn cos_c(a: vec2<f32>) -> vec2<f32> {
  return cosh_c(mul_i_c(a));
}

fn tan_c(a: vec2<f32>) -> vec2<f32> {
  return div_i_c(tanh_c(mul_i_c(a)));
}

// The angle, in the upper half plane, of a number of which a part is infinite.
fn infinite_angle_f(x: f32, y: f32) -> f32 {
  if (is_nan_f(x) || is_nan_f(y)) {
    return nan_f();
  }
  return atan2_f(select(0.0, inf_f(), is_inf_f(y)),
                 select(0.0, copysign_f(inf_f(), x), is_inf_f(x)));
}

fn asin_c(a: vec2<f32>) -> vec2<f32> {
  if (is_inf_c(a)) {
    return vec2<f32>(copysign_f(infinite_angle_f(abs_f(a.y), a.x), a.x), copysign_f(inf_f(), a.y));
  }
  let left = sqrt_c(vec2<f32>(1.0 - a.x, -a.y));
  let right = sqrt_c(vec2<f32>(1.0 + a.x, a.y));
  return vec2<f32>(atan2_f(a.x, mul_c(left, right).x), asinh_f(mul_c(conj_c(left), right).y));
}

fn acos_c(a: vec2<f32>) -> vec2<f32> {
  if (is_inf_c(a)) {
    return vec2<f32>(infinite_angle_f(a.x, a.y), -copysign_f(inf_f(), a.y));
  }
  let left = sqrt_c(vec2<f32>(1.0 - a.x, -a.y));
  let right = sqrt_c(vec2<f32>(1.0 + a.x, a.y));
  return vec2<f32>(2.0 * atan2_f(left.x, right.x), asinh_f(mul_c(conj_c(right), left).y));
}

fn asinh_c(a: vec2<f32>) -> vec2<f32> {
  return div_i_c(asin_c(mul_i_c(a)));
}

fn acosh_c(a: vec2<f32>) -> vec2<f32> {
  if (is_inf_c(a)) {
    return vec2<f32>(inf_f(), copysign_f(infinite_angle_f(a.x, a.y), a.y));
  }
  let left = sqrt_c(vec2<f32>(a.x - 1.0, a.y));
  let right = sqrt_c(vec2<f32>(a.x + 1.0, a.y));
  return vec2<f32>(asinh_f(mul_c(conj_c(left), right).x), 2.0 * atan2_f(left.y, right.x));
}

fn atanh_c(a: vec2<f32>) -> vec2<f32> {
  if (is_inf_c(a)) {
    return vec2<f32>(copysign_f(0.0, a.x),
                     select(copysign_f(1.57079633, a.y), nan_f(), is_nan_f(a.y)));
  }
  let x = abs(a.x);
  let distance = hypot_f(1.0 - x, a.y);
  // Near the pole the quotient would overflow, and far from it the squares.
  var growth = 0.0;
  if (distance < 1e-3) {
    growth = log_f(4.0 * x + distance * distance) - 2.0 * log_f(distance);
  } else {
    growth = log1p_f(div_f(4.0 * div_f(x, distance), distance));
  }
  var angle = copysign_f(3.14159265, a.y);
  if (is_nan_c(a)) {
    angle = nan_f();
  } else if (distance < 1e9) {
    angle = atan2_f(2.0 * a.y, (1.0 - x) * (1.0 + x) - a.y * a.y);
  }
  return vec2<f32>(copysign_f(0.25 * growth, a.x), 0.5 * angle);
}

fn atan_c(a: vec2<f32>) -> vec2<f32> {
  return div_i_c(atanh_c(mul_i_c(a)));
}
