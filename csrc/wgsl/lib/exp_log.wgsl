// Exponentials, logarithms and powers. The built-in functions promise 3 + 2|x| units in the last
// place or worse; these stay within about two, where exp2() does within about one. Coefficients: fit_coefficients.py.

// e^r for |r| <= 0.347
fn exp_reduced_f(r: f32) -> f32 {
  // fit "exp": (e^r - 1 - r) / r^2
  let tail = (((0.00139015297 * r + 0.00836373984) * r + 0.041666861) * r + 0.166665737) * r + 0.5;
  return 1.0 + (r + r * r * tail);
}

// x - n ln 2, with ln 2 in two parts so that n times the first is exact.
fn exp_rest_f(x: f32, n: f32) -> f32 {
  return (x - n * 0.693359375) + n * 2.12194440e-4;
}

// The integer nearest to x, |x| < 2^21, as the bits of 1.5 * 2^23 plus the integer. The last bits are the
// integer's. An addition and min() take less time than round() and i32(), which run at an eighth of the rate on some
// GPUs. Without min() compilers simplify (x + c) - c to x.
fn whole_bits_f(x: f32) -> u32 {
  return min(bitcast<u32>(x + 12582912.0), 0x4bffffffu);
}

fn from_whole_bits_f(bits: u32) -> f32 {
  return bitcast<f32>(bits) - 12582912.0;
}

// e^x = 2^n e^rest. exp2() promises 4 units in the last place for the rest, which is at most 1/2 in the unit of ln 2;
// GPUs have about one. There is no branch, because each call in a kernel would have its own copy of the rare path.

// For -87 < x < 88: the exponent of a normal number can be added as bits.
fn exp_near_f(x: f32) -> f32 {
  let bits = whole_bits_f(x * 1.44269502);
  let power = exp2(1.44269502 * exp_rest_f(x, from_whole_bits_f(bits)));
  return bitcast<f32>(bitcast<u32>(power) + (bits << 23u));
}

// n is bounded by the exponents of normal numbers. Beyond them the rest is larger, and the product overflows to
// infinity or becomes a denormal or zero.
fn exp_f(x: f32) -> f32 {
  let bits = clamp(bitcast<i32>(x * 1.44269502 + 12582912.0), 0x4b3fff82, 0x4b40007f); // of -126 and 127
  let rest = clamp(1.44269502 * exp_rest_f(x, bitcast<f32>(bits) - 12582912.0), -30.0, 2.0);
  let power = exp2(rest) * bitcast<f32>((bitcast<u32>(bits) << 23u) + 0x3f800000u);
  return select(power, x, is_nan_f(x));
}

// exp_f by a polynomial instead of exp2(), within about 1.3 units in the last place: for results that are the small
// difference of an exponential and something else.
fn exp_precise_f(x: f32) -> f32 {
  if (magnitude_bits_f(x) >= 0x42ae0000u) { // |x| >= 87, NaN
    return exp_f(x);
  }
  let bits = whole_bits_f(x * 1.44269502);
  let power = exp_reduced_f(exp_rest_f(x, from_whole_bits_f(bits)));
  return bitcast<f32>(bitcast<u32>(power) + (bits << 23u));
}

// exp_f for x <= 0 and NaN, with fewer bounds.
fn exp_falling_f(x: f32) -> f32 {
  let bits = max(bitcast<i32>(x * 1.44269502 + 12582912.0), 0x4b3fff82);
  let rest = max(1.44269502 * exp_rest_f(x, bitcast<f32>(bits) - 12582912.0), -30.0);
  let power = exp2(rest) * bitcast<f32>((bitcast<u32>(bits) << 23u) + 0x3f800000u);
  return select(power, x, is_nan_f(x));
}

fn exp2_f(x: f32) -> f32 {
  if (is_nan_f(x)) {
    return x;
  }
  if (x >= 128.0) {
    return inf_f();
  }
  let n = round(max(x, -151.0));
  return scale_f(1.0 + exp2m1_reduced_f(max(x, -151.0) - n), i32(n));
}

// x * 2^e, exact for integers e also where 2^e alone would overflow.
fn ldexp_f(x: f32, e: f32) -> f32 {
  if (e == round(e) && abs(e) <= 500.0) {
    let first = clamp(i32(e), -250, 250);
    return scale_f(scale_f(x, first), i32(e) - first);
  }
  return x * exp2_f(e);
}

// 2^r - 1 for |r| <= 0.505, fit "exp2".
fn exp2m1_reduced_f(r: f32) -> f32 {
  let tail = ((((1.54034677e-4 * r + 0.00133918842) * r + 0.00961824204) * r + 0.0555035527) * r +
              0.240226497) * r + 0.693147188;
  return r * tail;
}

// 2^n e^rest - 1 = 2^n (e^rest - 1) + (2^n - 1), so that nothing cancels near zero.
fn expm1_f(x: f32) -> f32 {
  if (magnitude_bits_f(x) >= 0x42ae0000u) { // |x| >= 87, NaN
    return exp_f(x) - 1.0;
  }
  let bits = whole_bits_f(x * 1.44269502);
  let r = exp_rest_f(x, from_whole_bits_f(bits));
  let scale = bitcast<f32>((bits << 23u) + 0x3f800000u);
  // fit "exp"
  let tail = (((0.00139015297 * r + 0.00836373984) * r + 0.041666861) * r + 0.166665737) * r + 0.5;
  return copysign_f(scale * (r + r * r * tail) + (scale - 1.0), x); // -0 stays
}

struct Logarithm {
  exponent: f32,
  fraction: f32,
}

// x = 2^exponent (1 + fraction) with 1 + fraction in [sqrt(1/2), sqrt(2)), for positive finite x.
fn split_logarithm_f(x: f32) -> Logarithm {
  var bits = bitcast<u32>(x);
  var exponent = 0;
  if (bits < 0x800000u) {
    let shift = countLeadingZeros(bits) - 8u;
    bits = bits << shift;
    exponent = -i32(shift);
  }
  // Subtracting the bits of sqrt(1/2) moves the exponent's step there.
  let offset = bitcast<i32>(bits) - 0x3f3504f3;
  exponent += offset >> 23u;
  let mantissa = bitcast<f32>((offset & 0x7fffff) + 0x3f3504f3);
  return Logarithm(f32(exponent), mantissa - 1.0);
}

// log(1 + x) for 1 + x in [sqrt(1/2), sqrt(2)].
fn log1p_reduced_f(x: f32) -> f32 {
  return x - log1p_deficit_f(x);
}

// x - log(1 + x) there, fit "log": (log(1 + x) - x + x^2/2) / x^3.
fn log1p_deficit_f(x: f32) -> f32 {
  let tail = (((((((0.0703758613 * x - 0.115145598) * x + 0.116770117) * x - 0.12420149) * x +
                 0.142493223) * x - 0.166680573) * x + 0.200007148) * x - 0.24999994) * x +
             0.333333312;
  return 0.5 * x * x - x * x * x * tail;
}

// What a logarithm returns for zero, negative numbers, infinity and NaN.
fn log_special_f(x: f32) -> f32 {
  if (magnitude_bits_f(x) == 0u) {
    return -inf_f();
  }
  return select(x, nan_f(), signbit_f(x));
}

fn is_log_special_f(x: f32) -> bool {
  let bits = bitcast<u32>(x);
  return bits >= 0x7f800000u || bits == 0u;
}

fn log_f(x: f32) -> f32 {
  if (is_log_special_f(x)) {
    return log_special_f(x);
  }
  let parts = split_logarithm_f(x);
  let fraction = log1p_reduced_f(parts.fraction) - parts.exponent * 2.12194440e-4;
  return parts.exponent * 0.693359375 + fraction;
}

fn log2_f(x: f32) -> f32 {
  if (is_log_special_f(x)) {
    return log_special_f(x);
  }
  let parts = split_logarithm_f(x);
  return parts.exponent + log1p_reduced_f(parts.fraction) * 1.44269502;
}

fn log10_f(x: f32) -> f32 {
  if (is_log_special_f(x)) {
    return log_special_f(x);
  }
  let parts = split_logarithm_f(x);
  // log10(2) = 0.30078125 + 2.48745664e-4
  let fraction = log1p_reduced_f(parts.fraction) * 0.434294492 + parts.exponent * 2.48745664e-4;
  return parts.exponent * 0.30078125 + fraction;
}

fn log1p_f(x: f32) -> f32 {
  if (is_nan_f(x)) {
    return x;
  }
  if (x > -0.292 && x < 0.414) {
    return log1p_reduced_f(x);
  }
  return log_f(1.0 + x);
}

fn logaddexp_f(a: f32, b: f32) -> f32 {
  if (is_nan_f(a) || is_nan_f(b)) {
    return nan_f();
  }
  if (is_inf_f(a) && bitcast<u32>(a) == bitcast<u32>(b)) {
    return a;
  }
  return max(a, b) + log1p_f(exp_f(-abs(a - b)));
}

fn logaddexp2_f(a: f32, b: f32) -> f32 {
  if (is_nan_f(a) || is_nan_f(b)) {
    return nan_f();
  }
  if (is_inf_f(a) && bitcast<u32>(a) == bitcast<u32>(b)) {
    return a;
  }
  return max(a, b) + log1p_f(exp2_f(-abs(a - b))) * 1.44269502;
}

// x log y, zero where x is zero.
fn xlogy_f(x: f32, y: f32) -> f32 {
  if (is_nan_f(y)) {
    return y;
  }
  return select(x * log_f(y), 0.0, x == 0.0);
}

fn xlog1py_f(x: f32, y: f32) -> f32 {
  if (is_nan_f(y)) {
    return y;
  }
  return select(x * log1p_f(y), 0.0, x == 0.0);
}

// |x|^y for finite positive |x|. The logarithm carries about 36 bits as a sum of two floats, the
// first of 12 bits, because y multiplies its error by up to 150.
fn pow_magnitude_f(x: f32, y: f32) -> f32 {
  let parts = split_logarithm_f(x);
  let f = parts.fraction;
  // log(1 + f) = 2 atanh(s) with s = f / (2 + f) as a sum; 2 + f is exact as 2 and f.
  let s = f / (2.0 + f);
  let s_high = leading_bits_f(s);
  let f_high = leading_bits_f(f);
  let rest = ((f_high - 2.0 * s_high) - s_high * f_high) + (f - f_high) * (1.0 - s_high);
  let s_low = rest / (2.0 + f);
  let t = s * s;
  // fit "pow_log": (atanh(s) - s) / s^3
  let tail = s * t * ((0.147954628 * t + 0.199942663) * t + 0.333333428);
  // 2 / ln 2 = 2.884765625 + 6.24456778e-4
  let high = s_high * 2.884765625;
  let low = s_high * 6.24456778e-4 + (s_low + tail) * 2.88539004;
  let log_high = leading_bits_f(parts.exponent + (high + low));
  let log_low = ((parts.exponent - log_high) + high) + low;
  let y_bounded = clamp(y, -1e30, 1e30);
  let y_high = leading_bits_f(y_bounded);
  let product = y_high * log_high;
  let correction = (y_bounded - y_high) * log_high + y_bounded * log_low;
  let exponent = product + correction;
  if (exponent >= 128.0) {
    return inf_f();
  }
  if (exponent < -150.0) {
    return 0.0;
  }
  let n = round(exponent);
  return scale_f(1.0 + exp2m1_reduced_f((product - n) + correction), i32(n));
}

// As C's pow, including its special cases.
fn pow_f(x: f32, y: f32) -> f32 {
  if (magnitude_bits_f(y) == 0u || bitcast<u32>(x) == 0x3f800000u) {
    return 1.0;
  }
  if (is_nan_f(x) || is_nan_f(y)) {
    return nan_f();
  }
  let x_bits = magnitude_bits_f(x);
  if (is_inf_f(y)) {
    if (x_bits == 0x3f800000u) {
      return 1.0;
    }
    return select(0.0, inf_f(), (x_bits > 0x3f800000u) != signbit_f(y));
  }
  let whole = abs(y) >= 16777216.0 || y == trunc(y);
  let odd = whole && abs(y) < 16777216.0 && (i32(y) & 1) == 1;
  let negative = odd && signbit_f(x);
  if (x_bits == 0u || x_bits == 0x7f800000u) {
    let magnitude = select(0.0, inf_f(), (x_bits == 0u) == signbit_f(y));
    return select(magnitude, -magnitude, negative);
  }
  if (signbit_f(x) && !whole) {
    return nan_f();
  }
  let magnitude = pow_magnitude_f(abs_f(x), y);
  return select(magnitude, -magnitude, negative);
}
