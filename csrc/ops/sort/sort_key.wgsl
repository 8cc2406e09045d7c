// Keys whose order as unsigned numbers is that of sorting: u32, or for int64 vec2<u32>.

const nan_key = 0xffffffffu;

// NaN is last, whatever its sign, and has a key of its own. The two zeros are equal.
fn key_from_f(v: f32) -> u32 {
  let bits = bitcast<u32>(v);
  if (is_nan_f(v)) {
    return nan_key;
  }
  if (bits == 0x80000000u) {
    return bits;
  }
  return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}

fn key_from_i(v: i32) -> u32 {
  return bitcast<u32>(v) ^ 0x80000000u;
}

fn key_from_l(v: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(v.x, v.y ^ 0x80000000u);
}
