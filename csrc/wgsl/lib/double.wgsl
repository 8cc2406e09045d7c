// Conversions of float64, which WGSL does not have: its bits as vec2<u32>(low, high), suffix d. All are
// exact or rounded to nearest even, as on the CPU, so float64 tensors convert on the device even though
// their arithmetic does not run there.

fn d_from_f(x: f32) -> vec2<u32> {
  let bits = bitcast<u32>(x);
  let sign = bits & 0x80000000u;
  var exponent = i32((bits >> 23u) & 0xffu);
  var mantissa = bits & 0x7fffffu;
  if (exponent == 0) {
    if (mantissa == 0u) {
      return vec2<u32>(0u, sign);
    }
    // A denormal f32 is a normal f64.
    let shift = countLeadingZeros(mantissa) - 8u;
    mantissa = (mantissa << shift) & 0x7fffffu;
    exponent = 1 - i32(shift);
  }
  let wide = select(u32(exponent + 896), 0x7ffu, exponent == 255);
  return vec2<u32>(mantissa << 29u, sign | (wide << 20u) | (mantissa >> 3u));
}

fn f_from_d(x: vec2<u32>) -> f32 {
  let sign = x.y & 0x80000000u;
  let biased = (x.y >> 20u) & 0x7ffu;
  if (biased == 0x7ffu) {
    let is_nan = ((x.y & 0xfffffu) | x.x) != 0u;
    return bitcast<f32>(sign | select(0x7f800000u, 0x7fc00000u, is_nan));
  }
  // Below half of the smallest denormal, 2^-150; at and above 2^128.
  if (biased < 873u) {
    return bitcast<f32>(sign);
  }
  if (biased > 1150u) {
    return bitcast<f32>(sign | inf_bits);
  }
  let significand = vec2<u32>(x.x, (x.y & 0xfffffu) | 0x100000u);
  // f32 keeps 24 of 53 bits, fewer where it is denormal.
  let is_normal = biased >= 897u;
  let shift = 29u + select(897u - biased, 0u, is_normal);
  let kept = shr_bits_l(significand, shift).x;
  let rest = significand ^ shl_bits_l(vec2<u32>(kept, 0u), shift);
  let half = shl_bits_l(vec2<u32>(1u, 0u), shift - 1u);
  let tie = all(rest == half);
  let round_up = (tie && (kept & 1u) == 1u) || (!tie && lt_ul(half, rest));
  // A carry out of the mantissa runs into the exponent, as it should.
  let exponent = select(0u, (biased - 897u) << 23u, is_normal);
  return bitcast<f32>(sign | (exponent + kept + select(0u, 1u, round_up)));
}

fn d_from_l(x: vec2<u32>) -> vec2<u32> {
  if (!b_from_l(x)) {
    return x;
  }
  var magnitude = x;
  if (is_neg_l(x)) {
    magnitude = neg_l(x);
  }
  let zeros = leading_zeros_l(magnitude);
  let top = shl_bits_l(magnitude, zeros);
  let rest = top.x & 0x7ffu;
  let kept = vec2<u32>((top.x >> 11u) | (top.y << 21u), top.y >> 11u);
  let round_up = rest > 0x400u || (rest == 0x400u && (kept.x & 1u) == 1u);
  // kept holds the leading one, which adds one to the exponent field.
  let exponent = vec2<u32>(0u, (1085u - zeros) << 20u);
  let bits = add_l(add_l(exponent, kept), vec2<u32>(select(0u, 1u, round_up), 0u));
  return vec2<u32>(bits.x, bits.y | (x.y & 0x80000000u));
}

// Truncates. Out of range and NaN give INT64_MIN, as the x86 conversion instruction does.
fn l_from_d(x: vec2<u32>) -> vec2<u32> {
  let biased = (x.y >> 20u) & 0x7ffu;
  if (biased < 1023u) {
    return vec2<u32>(0u, 0u);
  }
  if (biased >= 1086u) {
    return vec2<u32>(0u, 0x80000000u);
  }
  let significand = vec2<u32>(x.x, (x.y & 0xfffffu) | 0x100000u);
  var magnitude = significand;
  if (biased <= 1075u) {
    magnitude = shr_bits_l(significand, 1075u - biased);
  } else {
    magnitude = shl_bits_l(significand, biased - 1075u);
  }
  if ((x.y >> 31u) == 1u) {
    return neg_l(magnitude);
  }
  return magnitude;
}

fn i_from_d(x: vec2<u32>) -> i32 {
  let value = l_from_d(x);
  let fits = all(value == l_from_i(bitcast<i32>(value.x)));
  return select(-2147483647 - 1, bitcast<i32>(value.x), fits);
}

fn d_from_i(x: i32) -> vec2<u32> {
  return d_from_l(l_from_i(x));
}

fn d_from_c(x: vec2<f32>) -> vec2<u32> {
  return d_from_f(x.x);
}

fn c_from_d(x: vec2<u32>) -> vec2<f32> {
  return vec2<f32>(f_from_d(x), 0.0);
}

fn d_from_b(x: bool) -> vec2<u32> {
  return d_from_f(f_from_b(x));
}

fn b_from_d(x: vec2<u32>) -> bool {
  return ((x.y & 0x7fffffffu) | x.x) != 0u;
}

fn u_from_l(x: vec2<u32>) -> u32 {
  return x.x;
}

fn l_from_u(x: u32) -> vec2<u32> {
  return vec2<u32>(x, 0u);
}

// 1 / x, rounded to nearest even like the CPU's: 55 bits of the quotient by long division, and whether
// anything is left.
fn reciprocal_d(x: vec2<u32>) -> vec2<u32> {
  let sign = x.y & 0x80000000u;
  let field = (x.y >> 20u) & 0x7ffu;
  var divisor = vec2<u32>(x.x, x.y & 0xfffffu);
  let is_whole = (divisor.x | divisor.y) == 0u;
  if (field == 0x7ffu) {
    return select(vec2<u32>(x.x, x.y | 0x80000u), vec2<u32>(0u, sign), is_whole);
  }
  if (field == 0u && is_whole) {
    return vec2<u32>(0u, sign | 0x7ff00000u);
  }
  var exponent = i32(field);
  if (field == 0u) { // a denormal number gets a leading one, and an exponent to match
    let shift = leading_zeros_l(divisor) - 11u;
    divisor = shl_bits_l(divisor, shift);
    exponent = 1 - i32(shift);
  } else {
    divisor.y |= 0x100000u;
  }
  var biased = 2045 - exponent;
  var quotient = vec2<u32>(0u, 0u);
  var rest = vec2<u32>(0u, 0x100000u);
  if (all(divisor == rest)) { // a power of two
    quotient = vec2<u32>(0u, 0x400000u);
    rest = vec2<u32>(0u, 0u);
    biased += 1;
  } else {
    for (var i = 0; i < 55; i++) {
      rest = shl_bits_l(rest, 1u);
      quotient = shl_bits_l(quotient, 1u);
      if (!lt_ul(rest, divisor)) {
        rest = sub_l(rest, divisor);
        quotient.x |= 1u;
      }
    }
  }
  if (biased >= 2047) {
    return vec2<u32>(0u, sign | 0x7ff00000u);
  }
  let is_normal = biased >= 1;
  let shift = select(u32(3 - biased), 2u, is_normal);
  let kept = shr_bits_l(quotient, shift);
  let dropped = quotient.x & ((1u << shift) - 1u);
  let half = 1u << (shift - 1u);
  let above = dropped > half || (dropped == half && any(rest != vec2<u32>(0u)));
  let round_up = above || (dropped == half && (kept.x & 1u) == 1u);
  // A carry out of the mantissa runs into the exponent, as it should; kept holds the leading one.
  let high = select(0u, u32(biased - 1) << 20u, is_normal);
  let bits = add_l(add_l(vec2<u32>(0u, high), kept), vec2<u32>(select(0u, 1u, round_up), 0u));
  return vec2<u32>(bits.x, bits.y | sign);
}
