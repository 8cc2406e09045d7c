// Exact 64-bit two's complement integers as vec2<u32>(low word, high word). Arithmetic wraps as
// in C++; a zero divisor gives -1 for quotient and remainder alike (no trap, as on CUDA).

fn add_l(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = a.x + b.x;
  return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}

fn sub_l(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}

fn neg_l(a: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(0u - a.x, ~a.y + select(0u, 1u, a.x == 0u));
}

// Full 64-bit product of two words, by 16-bit halves.
fn mul_wide_u(a: u32, b: u32) -> vec2<u32> {
  let a0 = a & 0xffffu;
  let a1 = a >> 16u;
  let b0 = b & 0xffffu;
  let b1 = b >> 16u;
  let low = a0 * b0;
  let middle = a1 * b0 + (low >> 16u);
  let carry = a0 * b1 + (middle & 0xffffu);
  return vec2<u32>((carry << 16u) | (low & 0xffffu), a1 * b1 + (middle >> 16u) + (carry >> 16u));
}

// n / d for n < 2^31, with divisor = (d, multiplier, shift, unused) by divisor_words() of the host.
fn divide_by(n: u32, divisor: vec4<u32>) -> u32 {
  return (mul_wide_u(n, divisor.y).y + n) >> divisor.z;
}

fn mul_l(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let wide = mul_wide_u(a.x, b.x);
  return vec2<u32>(wide.x, wide.y + a.x * b.y + a.y * b.x);
}

// Shifts by 0 to 63; the *_l versions below define every count.
fn shl_bits_l(a: vec2<u32>, count: u32) -> vec2<u32> {
  if (count == 0u) {
    return a;
  }
  if (count >= 32u) {
    return vec2<u32>(0u, a.x << (count - 32u));
  }
  return vec2<u32>(a.x << count, (a.y << count) | (a.x >> (32u - count)));
}

fn shr_bits_l(a: vec2<u32>, count: u32) -> vec2<u32> {
  if (count == 0u) {
    return a;
  }
  if (count >= 32u) {
    return vec2<u32>(a.y >> (count - 32u), 0u);
  }
  return vec2<u32>((a.x >> count) | (a.y << (32u - count)), a.y >> count);
}

// PyTorch: counts outside [0, 64) shift everything out.
fn shl_l(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (b.y != 0u || b.x >= 64u) {
    return vec2<u32>(0u, 0u);
  }
  return shl_bits_l(a, b.x);
}

fn shr_l(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let sign = bitcast<u32>(bitcast<i32>(a.y) >> 31u);
  if (b.y != 0u || b.x >= 63u) {
    return vec2<u32>(sign, sign);
  }
  // Shifting the one's complement of a negative value brings zeros in, which turn into ones.
  return shr_bits_l(a ^ vec2<u32>(sign), b.x) ^ vec2<u32>(sign);
}

fn and_l(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return a & b;
}

fn or_l(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return a | b;
}

fn xor_l(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return a ^ b;
}

fn not_l(a: vec2<u32>) -> vec2<u32> {
  return ~a;
}

fn eq_l(a: vec2<u32>, b: vec2<u32>) -> bool {
  return all(a == b);
}

fn ne_l(a: vec2<u32>, b: vec2<u32>) -> bool {
  return any(a != b);
}

fn lt_ul(a: vec2<u32>, b: vec2<u32>) -> bool {
  return a.y < b.y || (a.y == b.y && a.x < b.x);
}

fn lt_l(a: vec2<u32>, b: vec2<u32>) -> bool {
  return bitcast<i32>(a.y) < bitcast<i32>(b.y) || (a.y == b.y && a.x < b.x);
}

fn le_l(a: vec2<u32>, b: vec2<u32>) -> bool {
  return !lt_l(b, a);
}

fn gt_l(a: vec2<u32>, b: vec2<u32>) -> bool {
  return lt_l(b, a);
}

fn ge_l(a: vec2<u32>, b: vec2<u32>) -> bool {
  return !lt_l(a, b);
}

fn is_neg_l(a: vec2<u32>) -> bool {
  return (a.y >> 31u) == 1u;
}

fn min_l(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(b, a, lt_l(a, b));
}

fn max_l(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(a, b, lt_l(a, b));
}

fn abs_l(a: vec2<u32>) -> vec2<u32> {
  return select(a, neg_l(a), is_neg_l(a));
}

fn sign_l(a: vec2<u32>) -> vec2<u32> {
  if (is_neg_l(a)) {
    return vec2<u32>(0xffffffffu, 0xffffffffu);
  }
  return vec2<u32>(select(0u, 1u, (a.x | a.y) != 0u), 0u);
}

fn leading_zeros_l(a: vec2<u32>) -> u32 {
  return select(countLeadingZeros(a.y), 32u + countLeadingZeros(a.x), a.y == 0u);
}

// (high * 2^32 + low) / divisor for high < divisor: schoolbook division in base 2^16 on a
// normalized divisor (Knuth, The Art of Computer Programming 2, 4.3.1, algorithm D).
fn div_2_by_1_u(high: u32, low: u32, divisor: u32) -> u32 {
  let shift = countLeadingZeros(divisor);
  let d = divisor << shift;
  let d1 = d >> 16u;
  let d0 = d & 0xffffu;
  let n = shl_bits_l(vec2<u32>(low, high), shift);
  let q1 = quotient_digit_u(n.y, n.x >> 16u, d1, d0);
  let rest = ((n.y << 16u) | (n.x >> 16u)) - q1 * d;
  let q0 = quotient_digit_u(rest, n.x & 0xffffu, d1, d0);
  return (q1 << 16u) | q0;
}

// One base 2^16 digit of (high * 2^16 + next) / (d1 * 2^16 + d0); the first guess is at most two
// too large.
fn quotient_digit_u(high: u32, next: u32, d1: u32, d0: u32) -> u32 {
  var q = high / d1;
  var rest = high - q * d1;
  for (var i = 0; i < 2; i++) {
    if (rest < 0x10000u && (q >= 0x10000u || q * d0 > ((rest << 16u) | next))) {
      q -= 1u;
      rest += d1;
    }
  }
  return q;
}

fn div_ul(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (b.y == 0u) {
    if (a.y == 0u) {
      return vec2<u32>(a.x / b.x, 0u);
    }
    let high = a.y / b.x;
    return vec2<u32>(div_2_by_1_u(a.y - high * b.x, a.x, b.x), high);
  }
  if (lt_ul(a, b)) {
    return vec2<u32>(0u, 0u);
  }
  // Dividing by the divisor's leading 32 bits gives the quotient or one more; start one below.
  let shift = countLeadingZeros(b.y);
  let half = shr_bits_l(a, 1u);
  let guess = div_2_by_1_u(half.y, half.x, shl_bits_l(b, shift).y);
  var q = shl_bits_l(vec2<u32>(guess, 0u), shift);
  q = shr_bits_l(q, 31u);
  q.x -= select(0u, 1u, q.x != 0u);
  let rest = sub_l(a, mul_l(q, b));
  q.x += select(1u, 0u, lt_ul(rest, b));
  return q;
}

fn div_l(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if ((b.x | b.y) == 0u) {
    return vec2<u32>(0xffffffffu, 0xffffffffu);
  }
  let q = div_ul(abs_l(a), abs_l(b));
  return select(q, neg_l(q), is_neg_l(a) != is_neg_l(b));
}

// C++ remainder, the sign of the dividend (PyTorch's fmod).
fn fmod_l(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if ((b.x | b.y) == 0u) {
    return vec2<u32>(0xffffffffu, 0xffffffffu);
  }
  return sub_l(a, mul_l(div_l(a, b), b));
}

// Python remainder, the sign of the divisor.
fn remainder_l(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let rest = fmod_l(a, b);
  let adjust = b_from_l(rest) && b_from_l(b) && is_neg_l(rest) != is_neg_l(b);
  return select(rest, add_l(rest, b), adjust);
}

fn floor_div_l(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let q = div_l(a, b);
  if (!b_from_l(b) || is_neg_l(a) == is_neg_l(b)) {
    return q;
  }
  let inexact = ne_l(mul_l(q, b), a);
  return sub_l(q, vec2<u32>(select(0u, 1u, inexact), 0u));
}

// A negative exponent gives the truncated reciprocal: nonzero for 1 and -1 only.
fn pow_l(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let one = vec2<u32>(1u, 0u);
  if (is_neg_l(b)) {
    if (eq_l(a, one)) {
      return one;
    }
    let minus_one = vec2<u32>(0xffffffffu, 0xffffffffu);
    if (eq_l(a, minus_one)) {
      return select(one, minus_one, (b.x & 1u) == 1u);
    }
    return vec2<u32>(0u, 0u);
  }
  var result = one;
  var base = a;
  var exponent = b;
  while (b_from_l(exponent)) {
    if ((exponent.x & 1u) == 1u) {
      result = mul_l(result, base);
    }
    exponent = shr_bits_l(exponent, 1u);
    base = mul_l(base, base);
  }
  return result;
}

fn gcd_l(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  var p = abs_l(a);
  var q = abs_l(b);
  while (b_from_l(p)) {
    let rest = fmod_l(q, p);
    q = p;
    p = rest;
  }
  return q;
}

fn lcm_l(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let divisor = gcd_l(a, b);
  if (!b_from_l(divisor)) {
    return divisor;
  }
  return abs_l(mul_l(div_l(a, divisor), b));
}
