// Classification, rounding, division and bit-level functions of f32. WGSL compilers may assume that
// NaN and infinity do not occur, so they are recognized by their bits and produced from variables.

var<private> inf_bits: u32 = 0x7f800000u;
var<private> nan_bits: u32 = 0x7fc00000u;

fn inf_f() -> f32 {
  return bitcast<f32>(inf_bits);
}

fn nan_f() -> f32 {
  return bitcast<f32>(nan_bits);
}

fn magnitude_bits_f(x: f32) -> u32 {
  return bitcast<u32>(x) & 0x7fffffffu;
}

fn is_nan_f(x: f32) -> bool {
  return magnitude_bits_f(x) > 0x7f800000u;
}

fn is_inf_f(x: f32) -> bool {
  return magnitude_bits_f(x) == 0x7f800000u;
}

fn is_finite_f(x: f32) -> bool {
  return magnitude_bits_f(x) < 0x7f800000u;
}

fn is_posinf_f(x: f32) -> bool {
  return bitcast<u32>(x) == 0x7f800000u;
}

fn is_neginf_f(x: f32) -> bool {
  return bitcast<u32>(x) == 0xff800000u;
}

fn signbit_f(x: f32) -> bool {
  return (bitcast<u32>(x) >> 31u) == 1u;
}

fn copysign_f(x: f32, y: f32) -> f32 {
  return bitcast<f32>(magnitude_bits_f(x) | (bitcast<u32>(y) & 0x80000000u));
}

fn neg_f(x: f32) -> f32 {
  return bitcast<f32>(bitcast<u32>(x) ^ 0x80000000u);
}

fn abs_f(x: f32) -> f32 {
  return bitcast<f32>(magnitude_bits_f(x));
}

// NaN has sign 0, as in PyTorch.
fn sign_f(x: f32) -> f32 {
  return select(sign(x), 0.0, is_nan_f(x));
}

// The first 12 bits of the significand: products of two such values are exact.
fn leading_bits_f(x: f32) -> f32 {
  return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
}

// x * 2^n for n in [-252, 254]; the steps keep each factor a normal number.
fn scale_f(x: f32, n: i32) -> f32 {
  let half = n >> 1u;
  return x * bitcast<f32>(bitcast<u32>(half + 127) << 23u) *
         bitcast<f32>(bitcast<u32>(n - half + 127) << 23u);
}

// mantissa * 2^(exponent - 150) for mantissa < 2^24, exactly, without touching denormals in f32.
fn compose_f(mantissa: u32, exponent: i32) -> f32 {
  if (mantissa == 0u) {
    return 0.0;
  }
  let shift = i32(countLeadingZeros(mantissa)) - 8;
  if (exponent > shift) {
    let fraction = (mantissa << bitcast<u32>(shift)) & 0x7fffffu;
    return bitcast<f32>((bitcast<u32>(exponent - shift) << 23u) | fraction);
  }
  return bitcast<f32>(mantissa << bitcast<u32>(max(exponent - 1, 0)));
}

fn biased_exponent_f(x: f32) -> i32 {
  return max(bitcast<i32>(magnitude_bits_f(x) >> 23u), 1);
}

// |x| = mantissa * 2^(biased exponent - 150)
fn mantissa_f(x: f32) -> u32 {
  let bits = magnitude_bits_f(x);
  return (bits & 0x7fffffu) | select(0u, 0x800000u, bits >= 0x800000u);
}

fn frexp_exponent_i(x: f32) -> i32 {
  let mantissa = mantissa_f(x);
  if (mantissa == 0u || !is_finite_f(x)) {
    return 0;
  }
  return biased_exponent_f(x) - 118 - i32(countLeadingZeros(mantissa));
}

fn frexp_mantissa_f(x: f32) -> f32 {
  let mantissa = mantissa_f(x);
  if (mantissa == 0u || !is_finite_f(x)) {
    return x;
  }
  let fraction = (mantissa << (countLeadingZeros(mantissa) - 8u)) & 0x7fffffu;
  return bitcast<f32>((bitcast<u32>(x) & 0x80000000u) | 0x3f000000u | fraction);
}

fn max_f(a: f32, b: f32) -> f32 {
  if (is_nan_f(a) || is_nan_f(b)) {
    return select(b, a, is_nan_f(a));
  }
  return max(a, b);
}

// max_f without branches. Faster where a kernel takes many maxima of registers, one after the other.
fn max_flat_f(a: f32, b: f32) -> f32 {
  return select(select(max(a, b), b, is_nan_f(b)), a, is_nan_f(a));
}

fn min_f(a: f32, b: f32) -> f32 {
  if (is_nan_f(a) || is_nan_f(b)) {
    return select(b, a, is_nan_f(a));
  }
  return min(a, b);
}

// fmax and fmin prefer the number to the NaN.
fn fmax_f(a: f32, b: f32) -> f32 {
  return select(select(b, a, a > b || is_nan_f(b)), b, is_nan_f(a));
}

fn fmin_f(a: f32, b: f32) -> f32 {
  return select(select(b, a, a < b || is_nan_f(b)), b, is_nan_f(a));
}

// NaN stays NaN, and the upper bound wins where the bounds cross.
fn clamp_f(x: f32, low: f32, high: f32) -> f32 {
  return min_f(max_f(x, low), high);
}

// Zero for the bits from -0 to -infinity; NaN stays.
fn relu_f(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  return bitcast<f32>(select(bits, 0u, bits - 0x80000000u <= 0x7f800000u));
}

fn frac_f(x: f32) -> f32 {
  return x - trunc(x);
}

// Rounds to a number of decimals, half to even after scaling.
fn round_decimals_f(x: f32, decimals: i32) -> f32 {
  let ten = pow_f(10.0, f32(abs(decimals)));
  return select(round(x * ten) / ten, round(x / ten) * ten, decimals < 0);
}

fn heaviside_f(x: f32, at_zero: f32) -> f32 {
  return select(select(0.0, 1.0, x > 0.0 && !is_nan_f(x)), at_zero, x == 0.0);
}

// GPUs divide by multiplying with a reciprocal that may be wrong by two units in the last place, so x / x is
// not always 1. The residual a - q * b corrects the quotient. Its products are exact, because the factors are
// split into halves of twelve bits. They are split by a bit mask, because a compiler may simplify an arithmetic
// split away. The reciprocal that multiplies the residual has its last bit changed: with equal factors a compiler
// would turn a * r + residual * r into (a + residual) * r, which undoes the correction.
fn refined_quotient_f(a: f32, b: f32, reciprocal: f32) -> f32 {
  let q = a * reciprocal;
  let q_high = bitcast<f32>(bitcast<u32>(q) & 0xfffff000u);
  let b_high = bitcast<f32>(bitcast<u32>(b) & 0xfffff000u);
  let q_low = q - q_high;
  let b_low = b - b_high;
  let residual = ((a - q_high * b_high) - q_high * b_low - q_low * b_high) - q_low * b_low;
  return q + residual * bitcast<f32>(bitcast<u32>(reciprocal) ^ 1u);
}

// From 2^-50 up to 2^52: nothing that refined_quotient_f computes of such numbers overflows, or is so small
// that it would be flushed to zero.
fn is_moderate_f(x: f32) -> bool {
  return magnitude_bits_f(x) - 0x26800000u < 0x33000000u;
}

fn div_f(a: f32, b: f32) -> f32 {
  if (is_moderate_f(a) && is_moderate_f(b)) {
    return refined_quotient_f(a, b, 1.0 / b);
  }
  return div_far_f(a, b);
}

// Divides the mantissas, which are moderate. Zeros, infinities and NaN are handled separately.
fn div_far_f(a: f32, b: f32) -> f32 {
  let negative = signbit_f(a) != signbit_f(b);
  let of_finite = is_finite_f(a) && is_finite_f(b);
  if (of_finite && magnitude_bits_f(a) != 0u && magnitude_bits_f(b) != 0u) {
    let divisor = frexp_mantissa_f(b);
    let quotient = refined_quotient_f(frexp_mantissa_f(a), divisor, 1.0 / divisor);
    let exponent = frexp_exponent_i(a) - frexp_exponent_i(b);
    let half = exponent >> 1u;
    return scale_f(scale_f(quotient, half), exponent - half);
  }
  let is_zero = magnitude_bits_f(a) == 0u || is_inf_f(b);
  let is_infinite = magnitude_bits_f(b) == 0u || is_inf_f(a);
  if (is_nan_f(a) || is_nan_f(b) || is_zero == is_infinite) {
    return nan_f();
  }
  return copysign_f(select(0.0, inf_f(), is_infinite), select(1.0, -1.0, negative));
}

fn reciprocal_f(x: f32) -> f32 {
  return div_f(1.0, x);
}

// The quotient is rounded before it is truncated, but a GPU may round it wrongly. Near an integer the exact
// remainder tells on which side the quotient lies, or whether it is close enough below to round up.
fn div_trunc_f(a: f32, b: f32) -> f32 {
  let quotient = div_f(a, b);
  if (is_nan_f(quotient)) {
    return quotient;
  }
  let whole = round(abs(quotient));
  if (whole == 0.0 || whole > 1e6 || abs(abs(quotient) - whole) > whole * 4e-7) {
    return trunc(quotient);
  }
  let missing = abs(b) - abs(fmod_f(a, b));
  let half_ulp = 0.5 * (whole - bitcast<f32>(bitcast<u32>(whole) - 1u));
  let reached = missing >= 0.5 * abs(b) || missing <= half_ulp * abs(b);
  return copysign_f(select(whole - 1.0, whole, reached), quotient);
}

// Exact remainder with the sign of the dividend: long division of the significands.
fn fmod_f(a: f32, b: f32) -> f32 {
  let divisor = mantissa_f(b);
  if (is_nan_f(a) || is_nan_f(b) || is_inf_f(a) || divisor == 0u) {
    return nan_f();
  }
  let exponent = biased_exponent_f(b);
  var steps = biased_exponent_f(a) - exponent;
  if (steps < 0 || is_inf_f(b)) {
    return a;
  }
  var rest = mantissa_f(a) % divisor;
  while (steps > 0 && rest != 0u) {
    let shift = min(steps, 8);
    rest = (rest << bitcast<u32>(shift)) % divisor;
    steps -= shift;
  }
  return copysign_f(compose_f(rest, exponent), a);
}

// Python remainder, the sign of the divisor.
fn remainder_f(a: f32, b: f32) -> f32 {
  let rest = fmod_f(a, b);
  if (is_nan_f(rest) || rest == 0.0 || signbit_f(rest) == signbit_f(b)) {
    return rest;
  }
  return select(rest + b, b, is_inf_f(b));
}

// As Python: the quotient is taken after removing the remainder, so that it is nearly an integer.
fn floor_div_f(a: f32, b: f32) -> f32 {
  if (magnitude_bits_f(b) == 0u) {
    return div_f(a, b);
  }
  let rest = fmod_f(a, b);
  if (is_nan_f(rest)) {
    return rest;
  }
  var quotient = div_f(a - rest, b);
  if (rest != 0.0 && signbit_f(rest) != signbit_f(b)) {
    quotient -= 1.0;
  }
  if (quotient == 0.0) {
    return copysign_f(0.0, select(1.0, -1.0, signbit_f(a) != signbit_f(b)));
  }
  let lower = floor(quotient);
  return select(lower, lower + 1.0, quotient - lower > 0.5);
}

fn nextafter_f(a: f32, b: f32) -> f32 {
  return nextafter_step_f(a, b, 1u);
}

fn nextafter_bf16_f(a: f32, b: f32) -> f32 {
  return nextafter_step_f(a, b, 0x10000u);
}

fn nextafter_f16_f(a: f32, b: f32) -> f32 {
  if (is_nan_f(a) || is_nan_f(b)) {
    return nan_f();
  }
  return f_from_f16(nextafter_bits(f16_from_f(a), f16_from_f(b), 0x8000u, 1u));
}

fn nextafter_step_f(a: f32, b: f32, step: u32) -> f32 {
  if (is_nan_f(a) || is_nan_f(b)) {
    return nan_f();
  }
  return bitcast<f32>(nextafter_bits(bitcast<u32>(a), bitcast<u32>(b), 0x80000000u, step));
}

// The number after `a` towards `b`, as bits. `sign` is the sign's bit; neighbouring numbers differ
// by `step` in their bits.
fn nextafter_bits(a: u32, b: u32, sign: u32, step: u32) -> u32 {
  let a_magnitude = a & (sign - 1u);
  let b_magnitude = b & (sign - 1u);
  if (a == b || (a_magnitude | b_magnitude) == 0u) {
    return b;
  }
  if (a_magnitude == 0u) {
    return (b & sign) | step;
  }
  // Bit patterns of one sign are ordered like their magnitudes.
  let grows = (a & sign) == (b & sign) && b_magnitude > a_magnitude;
  return select(a - step, a + step, grows);
}

// The square root is taken of a ratio, so that squares neither overflow nor underflow.
fn hypot_f(a: f32, b: f32) -> f32 {
  if (is_inf_f(a) || is_inf_f(b)) {
    return inf_f();
  }
  if (is_nan_f(a) || is_nan_f(b)) {
    return nan_f();
  }
  let large = max(abs(a), abs(b));
  if (large == 0.0) {
    return 0.0;
  }
  let ratio = div_f(min(abs(a), abs(b)), large);
  return large * sqrt(1.0 + ratio * ratio);
}

// Drivers may compute sqrt(x) as x * rsqrt(x), which fails at 0 and infinity.
fn sqrt_f(x: f32) -> f32 {
  if (is_nan_f(x) || magnitude_bits_f(x) == 0u || is_posinf_f(x)) {
    return x;
  }
  return select(sqrt(x), nan_f(), signbit_f(x));
}

fn rsqrt_f(x: f32) -> f32 {
  if (is_nan_f(x)) {
    return x;
  }
  if (magnitude_bits_f(x) == 0u) {
    return copysign_f(inf_f(), x);
  }
  if (signbit_f(x)) {
    return nan_f();
  }
  return select(inverseSqrt(x), 0.0, is_inf_f(x));
}

// The argument of a real number as a complex one: pi for negative numbers, else 0.
fn angle_f(x: f32) -> f32 {
  return select(select(0.0, 3.14159265358979, x < 0.0), x, is_nan_f(x));
}

fn nan_to_num_f(x: f32, nan: f32, posinf: f32, neginf: f32) -> f32 {
  return select(select(select(x, neginf, is_neginf_f(x)), posinf, is_posinf_f(x)), nan, is_nan_f(x));
}
