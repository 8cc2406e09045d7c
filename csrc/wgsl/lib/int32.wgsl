// 32-bit integers, also carrying int16, int8, uint8 and bool. Overflow wraps; a zero divisor gives
// -1 for quotient and remainder alike (no trap, as on CUDA).

fn div_i(a: i32, b: i32) -> i32 {
  return select(a / b, -1, b == 0);
}

// C++ remainder, the sign of the dividend (PyTorch's fmod).
fn fmod_i(a: i32, b: i32) -> i32 {
  return select(a % b, -1, b == 0);
}

// Python remainder, the sign of the divisor.
fn remainder_i(a: i32, b: i32) -> i32 {
  let rest = fmod_i(a, b);
  let adjust = rest != 0 && b != 0 && (rest < 0) != (b < 0);
  return select(rest, rest + b, adjust);
}

fn floor_div_i(a: i32, b: i32) -> i32 {
  let q = div_i(a, b);
  let adjust = b != 0 && (a < 0) != (b < 0) && q * b != a;
  return select(q, q - 1, adjust);
}

// A negative exponent gives the truncated reciprocal: nonzero for 1 and -1 only.
fn pow_i(a: i32, b: i32) -> i32 {
  if (b < 0) {
    if (a == 1) {
      return 1;
    }
    return select(0, select(1, -1, (b & 1) == 1), a == -1);
  }
  var result = 1;
  var base = a;
  var exponent = b;
  while (exponent != 0) {
    if ((exponent & 1) == 1) {
      result *= base;
    }
    exponent = exponent >> 1u;
    base *= base;
  }
  return result;
}

fn gcd_i(a: i32, b: i32) -> i32 {
  var p = abs(a);
  var q = abs(b);
  while (p != 0) {
    let rest = q % p;
    q = p;
    p = rest;
  }
  return q;
}

fn lcm_i(a: i32, b: i32) -> i32 {
  let divisor = gcd_i(a, b);
  if (divisor == 0) {
    return 0;
  }
  return abs(a / divisor * b);
}

// PyTorch: counts outside [0, bits) shift everything out. bits is the width of the stored type.
fn shl_bits_i(a: i32, b: i32, bits: i32) -> i32 {
  return select(a << (bitcast<u32>(b) & 31u), 0, b < 0 || b >= bits);
}

fn shr_bits_i(a: i32, b: i32, bits: i32) -> i32 {
  // Narrow types arrive sign- or zero-extended, so 31 leaves just their sign.
  return a >> select(bitcast<u32>(b), 31u, b < 0 || b >= bits);
}

fn shl_i(a: i32, b: i32) -> i32 {
  return shl_bits_i(a, b, 32);
}

fn shr_i(a: i32, b: i32) -> i32 {
  return shr_bits_i(a, b, 32);
}

fn abs_i(a: i32) -> i32 {
  return abs(a);
}

fn sign_i(a: i32) -> i32 {
  return sign(a);
}
