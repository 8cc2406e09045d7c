// Conversions between compute types (f: f32, i: i32, l: int64 as vec2<u32>(low, high), c: complex64
// as vec2<f32>) and storage types (raw bits in the low end of a u32). Named
// <to>_from_<from>; b is bool.
// Half floats go through integers: pack2x16float leaves overflow undefined and may flush denormals.

fn f_from_f16(half: u32) -> f32 {
  let sign = (half & 0x8000u) << 16u;
  let magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) {
    return bitcast<f32>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13u));
  }
  if (magnitude < 0x400u) {
    // A denormal half is an exact multiple of 2^-24, which is a normal f32.
    return bitcast<f32>(sign | bitcast<u32>(f32(magnitude) * 5.9604644775390625e-8));
  }
  return bitcast<f32>(sign | ((magnitude << 13u) + 0x38000000u));
}

// Both halves of a word.
fn f2_from_f16(word: u32) -> vec2<f32> {
  return vec2<f32>(f_from_f16(word & 0xffffu), f_from_f16(word >> 16u));
}

fn f16_from_f(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let sign = (bits >> 16u) & 0x8000u;
  let magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return sign | 0x7e00u;
  }
  // 65520 is the smallest value that rounds to infinity.
  if (magnitude >= 0x477ff000u) {
    return sign | 0x7c00u;
  }
  if (magnitude < 0x38800000u) {
    let shift = 126u - (magnitude >> 23u);
    if (shift > 24u) {
      return sign;
    }
    let mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    let half = 1u << (shift - 1u);
    let quotient = mantissa >> shift;
    let rest = mantissa & ((half << 1u) - 1u);
    let round_up = rest > half || (rest == half && (quotient & 1u) == 1u);
    return sign | (quotient + select(0u, 1u, round_up));
  }
  let rounded = magnitude + 0xfffu + ((magnitude >> 13u) & 1u);
  return sign | ((rounded - 0x38000000u) >> 13u);
}

fn f_from_bf16(half: u32) -> f32 {
  return bitcast<f32>(half << 16u);
}

fn bf16_from_f(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return 0x7fc0u;
  }
  return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}

// float8_e4m3fn, as PyTorch has it: no infinity, and what is too large becomes the largest, 448.
fn f_from_f8e4m3(byte: u32) -> f32 {
  let sign = (byte & 0x80u) << 24u;
  let magnitude = byte & 0x7fu;
  if (magnitude == 0x7fu) {
    return bitcast<f32>(sign | 0x7fc00000u);
  }
  if (magnitude < 8u) { // a multiple of 2^-9
    return bitcast<f32>(sign | bitcast<u32>(f32(magnitude) * 0.001953125));
  }
  return bitcast<f32>(sign | ((magnitude << 20u) + 0x3c000000u));
}

// To a sign, an exponent and 23 - shift bits of mantissa. `zero` are the bits of the float32 whose exponent would be 0 there;
// below 2 * zero numbers are multiples of 1 / units. What is too large becomes `largest`, as bits of the result.
fn f8_from_f(x: f32, shift: u32, zero: u32, units: f32, largest: u32) -> u32 {
  let bits = bitcast<u32>(x);
  let sign = (bits >> 24u) & 0x80u;
  let magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return sign | 0x7fu;
  }
  if (magnitude < zero + 0x800000u) {
    return sign | u32(round(bitcast<f32>(magnitude) * units));
  }
  let half = 1u << (shift - 1u);
  let rounded = min(magnitude, zero + (largest << shift)) + (half - 1u) + ((magnitude >> shift) & 1u);
  return sign | ((rounded - zero) >> shift);
}

fn f8e4m3_from_f(x: f32) -> u32 {
  return f8_from_f(x, 20u, 0x3c000000u, 512.0, 0x7eu);
}

// float8_e5m2 is the upper byte of a half.
fn f_from_f8e5m2(byte: u32) -> f32 {
  return f_from_f16(byte << 8u);
}

fn f8e5m2_from_f(x: f32) -> u32 {
  return f8_from_f(x, 21u, 0x38000000u, 65536.0, 0x7cu);
}

// float8_e4m3fnuz and float8_e5m2fnuz: the exponents start one lower, there is no infinity, and the bits of -0 are the only NaN.
// Numbers without exponent are multiples of `unit`.
fn f_from_f8fnuz(byte: u32, shift: u32, zero: u32, unit: f32) -> f32 {
  if (byte == 0x80u) {
    return nan_f();
  }
  let magnitude = byte & 0x7fu;
  let bits = select((magnitude << shift) + zero, bitcast<u32>(f32(magnitude) * unit), magnitude < 1u << (23u - shift));
  return bitcast<f32>(((byte & 0x80u) << 24u) | bits);
}

// What is too large becomes NaN.
fn f8fnuz_from_f(x: f32, shift: u32, zero: u32, units: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return 0x80u;
  }
  let byte = f8_from_f(bitcast<f32>(magnitude), shift, zero, units, 0x80u);
  return select(byte | ((bits >> 24u) & 0x80u), 0u, byte == 0u);
}

fn f_from_f8e4m3fnuz(byte: u32) -> f32 {
  return f_from_f8fnuz(byte, 20u, 0x3b800000u, 0.0009765625);
}

fn f8e4m3fnuz_from_f(x: f32) -> u32 {
  return f8fnuz_from_f(x, 20u, 0x3b800000u, 1024.0);
}

fn f_from_f8e5m2fnuz(byte: u32) -> f32 {
  return f_from_f8fnuz(byte, 21u, 0x37800000u, 0.00000762939453125);
}

fn f8e5m2fnuz_from_f(x: f32) -> u32 {
  return f8fnuz_from_f(x, 21u, 0x37800000u, 131072.0);
}

// f32 values as the 16-bit types would hold them, for ops that round between steps. In integers:
// drivers remove a conversion to native halves and back.
fn round_f16_f(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  let magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return x;
  }
  if (magnitude >= 0x477ff000u) {
    return bitcast<f32>((bits & 0x80000000u) | 0x7f800000u);
  }
  if (magnitude < 0x38800000u) { // multiples of 2^-24, the denormal halves
    return round(x * 16777216.0) * 5.9604644775390625e-8;
  }
  return bitcast<f32>((bits + 0xfffu + ((bits >> 13u) & 1u)) & 0xffffe000u);
}

fn round_bf16_f(x: f32) -> f32 {
  return f_from_bf16(bf16_from_f(x));
}

fn i_from_i8(byte: u32) -> i32 {
  return bitcast<i32>(byte << 24u) >> 24u;
}

// Bytes that were reinterpreted as truth values may be any: all but 0 are true.
fn i_from_bool(byte: u32) -> i32 {
  return select(0, 1, (byte & 0xffu) != 0u);
}

fn i_from_u8(byte: u32) -> i32 {
  return bitcast<i32>(byte & 0xffu);
}

fn i_from_i16(word: u32) -> i32 {
  return bitcast<i32>(word << 16u) >> 16u;
}

// Out of range and NaN give INT_MIN, as the x86 conversion instruction does.
fn i_from_f(x: f32) -> i32 {
  let in_range = (bitcast<u32>(x) & 0x7fffffffu) < 0x4f000000u;
  return select(-2147483647 - 1, i32(select(0.0, x, in_range)), in_range);
}

fn l_from_f(x: f32) -> vec2<u32> {
  let bits = bitcast<u32>(x);
  let exponent = (bits >> 23u) & 0xffu;
  if (exponent >= 190u) {
    return vec2<u32>(0u, 0x80000000u);
  }
  if (exponent < 127u) {
    return vec2<u32>(0u, 0u);
  }
  let mantissa = (bits & 0x7fffffu) | 0x800000u;
  var magnitude = vec2<u32>(0u, 0u);
  if (exponent < 150u) {
    magnitude.x = mantissa >> (150u - exponent);
  } else {
    magnitude = shl_bits_l(vec2<u32>(mantissa, 0u), exponent - 150u);
  }
  if ((bits >> 31u) == 1u) {
    return neg_l(magnitude);
  }
  return magnitude;
}

fn f_from_i(x: i32) -> f32 {
  return f32(x);
}

fn f_from_l(x: vec2<u32>) -> f32 {
  let negative = (x.y >> 31u) == 1u;
  var magnitude = x;
  if (negative) {
    magnitude = neg_l(x);
  }
  let value = f_from_ul(magnitude);
  return select(value, -value, negative);
}

// Unsigned 64-bit to f32, rounded to nearest even in integers: the mantissa that reaches the
// built-in conversion has at most 25 bits and an even last one.
fn f_from_ul(x: vec2<u32>) -> f32 {
  let zeros = leading_zeros_l(x);
  if (zeros >= 40u) {
    return f32(x.x);
  }
  let shift = 40u - zeros;
  let kept = shr_bits_l(x, shift).x;
  let rest = x ^ shl_bits_l(vec2<u32>(kept, 0u), shift);
  let half = shl_bits_l(vec2<u32>(1u, 0u), shift - 1u);
  let tie = all(rest == half);
  let round_up = (tie && (kept & 1u) == 1u) || (!tie && lt_ul(half, rest));
  return f32(kept + select(0u, 1u, round_up)) * bitcast<f32>((127u + shift) << 23u);
}

fn l_from_i(x: i32) -> vec2<u32> {
  return vec2<u32>(bitcast<u32>(x), bitcast<u32>(x >> 31u));
}

fn i_from_l(x: vec2<u32>) -> i32 {
  return bitcast<i32>(x.x);
}

fn c_from_f(x: f32) -> vec2<f32> {
  return vec2<f32>(x, 0.0);
}

fn c_from_i(x: i32) -> vec2<f32> {
  return vec2<f32>(f32(x), 0.0);
}

fn c_from_l(x: vec2<u32>) -> vec2<f32> {
  return vec2<f32>(f_from_l(x), 0.0);
}

// A complex value converts to a real type by dropping the imaginary part.
fn f_from_c(x: vec2<f32>) -> f32 {
  return x.x;
}

fn i_from_c(x: vec2<f32>) -> i32 {
  return i_from_f(x.x);
}

fn l_from_c(x: vec2<f32>) -> vec2<u32> {
  return l_from_f(x.x);
}

// Tested on bits so that NaN and denormals count as true everywhere.
fn b_from_f(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) != 0u;
}

fn b_from_i(x: i32) -> bool {
  return x != 0;
}

fn b_from_l(x: vec2<u32>) -> bool {
  return (x.x | x.y) != 0u;
}

fn b_from_c(x: vec2<f32>) -> bool {
  return b_from_f(x.x) || b_from_f(x.y);
}

fn f_from_b(x: bool) -> f32 {
  return select(0.0, 1.0, x);
}

fn i_from_b(x: bool) -> i32 {
  return select(0, 1, x);
}

fn l_from_b(x: bool) -> vec2<u32> {
  return vec2<u32>(select(0u, 1u, x), 0u);
}

fn c_from_b(x: bool) -> vec2<f32> {
  return vec2<f32>(select(0.0, 1.0, x), 0.0);
}
