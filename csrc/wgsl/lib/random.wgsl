// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011) and the distributions drawn from its words.

// The counter is (offset low, offset high, subsequence low, subsequence high) and the key is the
// seed, as in PyTorch's CUDA generator.
fn philox(key: vec2<u32>, counter: vec4<u32>) -> vec4<u32> {
  var k = key;
  var c = counter;
  for (var round = 0; round < 10; round++) {
    let even = mul_wide_u(0xd2511f53u, c.x);
    let odd = mul_wide_u(0xcd9e8d57u, c.z);
    c = vec4<u32>(odd.y ^ c.y ^ k.x, odd.x, even.y ^ c.w ^ k.y, even.x);
    k += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
  }
  return c;
}

fn philox_at(seed: vec2<u32>, subsequence: u32, offset: vec2<u32>) -> vec4<u32> {
  return philox(seed, vec4<u32>(offset, subsequence, 0u));
}

// Uniform in [0, 1) with 24 bits, so that every value is exact and 1 is never reached.
fn uniform_f(bits: u32) -> f32 {
  return f32(bits >> 8u) * 5.9604644775390625e-8;
}

// Uniform in (0, 1], for logarithms; 32 bits, so that the tails reach further.
fn uniform_open_f(bits: u32) -> f32 {
  return f32(bits) * 2.3283064365386963e-10 + 1.1641532182693481e-10;
}

// Two independent standard normal numbers (Box and Muller, 1958). The second word is an angle in
// fractions of a turn, so its quadrant is read from the top bits.
fn normal_pair_f(radius_bits: u32, angle_bits: u32) -> vec2<f32> {
  let radius = sqrt_f(-2.0 * log_f(uniform_open_f(radius_bits)));
  let rest = f32(bitcast<i32>(angle_bits << 2u)) * 3.65729187e-10;
  let angle = Angle(rest, (angle_bits >> 30u) + ((angle_bits >> 29u) & 1u));
  return radius * vec2<f32>(cos_angle_f(angle), sin_angle_f(angle));
}

// Never 0: ATen divides by such numbers.
fn exponential_f(bits: u32, rate: f32) -> f32 {
  return -log_f(min(uniform_open_f(bits), 0.99999994)) / rate;
}

fn cauchy_f(bits: u32, median: f32, sigma: f32) -> f32 {
  // Centred before scaling: an angle of exactly pi/2 never occurs.
  return median + sigma * tan_f((uniform_open_f(bits) - 0.5) * 3.14159265);
}

fn geometric_f(bits: u32, p: f32) -> f32 {
  return max(ceil(log_f(uniform_open_f(bits)) / log1p_f(-p)), 1.0);
}

// A value of [low, high) that was rounded up to `high` becomes `low`.
fn below_f(value: f32, low: f32, high: f32) -> f32 {
  return select(value, low, value >= high);
}

// Integer in [0, range) for a range of 32 bits: the high word of bits / 2^32 * range.
fn scaled_below_l(bits: vec2<u32>, range: u32) -> vec2<u32> {
  let high = mul_wide_u(bits.y, range);
  let carry = add_l(vec2<u32>(high.x, 0u), vec2<u32>(mul_wide_u(bits.x, range).y, 0u)).y;
  return vec2<u32>(high.y + carry, 0u);
}

// Integer in [0, range); the bias of the remainder is at most range / 2^64.
fn random_below_l(bits: vec2<u32>, range: vec2<u32>) -> vec2<u32> {
  return sub_l(bits, mul_l(div_ul(bits, range), range));
}

// Position of number i when `count` numbers are ordered by random keys: a permutation.
fn random_rank_u(seed: vec2<u32>, stream: vec2<u32>, i: u32, count: u32) -> u32 {
  let key = philox_at(seed, i / 4u, stream)[i % 4u];
  var rank = 0u;
  for (var block = 0u; block * 4u < count; block++) {
    let keys = philox_at(seed, block, stream);
    for (var lane = 0u; lane < 4u && block * 4u + lane < count; lane++) {
      let first = keys[lane] < key || (keys[lane] == key && block * 4u + lane < i);
      rank += select(0u, 1u, first);
    }
  }
  return rank;
}

// A permutation of [0, count) without the keys in memory: a Feistel network on the next power of
// two, followed along its cycle until it comes back into the range (Black and Rogaway, 2002).
fn random_permuted_u(seed: vec2<u32>, stream: vec2<u32>, i: u32, count: u32) -> u32 {
  let bits = max(2u, 32u - countLeadingZeros(count - 1u));
  let low_bits = bits / 2u;
  let low_mask = (1u << low_bits) - 1u;
  let high_mask = (1u << (bits - low_bits)) - 1u;
  var x = i;
  loop {
    var low = x & low_mask;
    var high = x >> low_bits;
    for (var round = 0u; round < 8u; round += 2u) {
      low ^= philox(seed, vec4<u32>(stream, high, round)).x & low_mask;
      high ^= philox(seed, vec4<u32>(stream, low, round + 1u)).x & high_mask;
    }
    x = (high << low_bits) | low;
    if (x < count) {
      return x;
    }
  }
  return x;
}
