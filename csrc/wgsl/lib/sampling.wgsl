// Distributions whose numbers take a varying count of draws: each element has a sequence of its own.

struct Draws {
  seed: vec2<u32>,
  stream: vec2<u32>,
  element: u32,
  count: u32, // drawn so far
  words: vec4<u32>,
}

// Uniform in (0, 1].
fn draw_f(draws: ptr<function, Draws>) -> f32 {
  let lane = (*draws).count & 3u;
  if (lane == 0u) {
    let round = (*draws).count / 4u;
    (*draws).words = philox((*draws).seed, vec4<u32>((*draws).stream, (*draws).element, round));
  }
  (*draws).count++;
  return uniform_open_f((*draws).words[lane]);
}

fn draw_normal_f(draws: ptr<function, Draws>) -> f32 {
  let radius = sqrt_f(-2.0 * log_f(draw_f(draws)));
  return radius * cos_f(6.28318531 * draw_f(draws));
}

fn poisson_f(draws: ptr<function, Draws>, rate: f32) -> f32 {
  if (is_nan_f(rate)) {
    return rate;
  }
  if (rate < 10.0) {
    // How many uniform numbers have a product above e^-rate.
    let bound = exp_f(-rate);
    var product = draw_f(draws);
    var k = 0.0;
    while (product > bound && k < 1000.0) {
      product *= draw_f(draws);
      k += 1.0;
    }
    return k;
  }
  // Transformed rejection, "PTRS" of Hoermann, "The transformed rejection method for generating
  // Poisson random variables" (1993); the density in a form that keeps its digits.
  let b = 0.931 + 2.53 * sqrt_f(rate);
  let a = 0.02483 * b - 0.059;
  let inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
  let sure = 0.9277 - 3.6224 / (b - 2.0);
  for (var trial = 0; trial < 1000; trial++) {
    let u = draw_f(draws) - 0.5;
    let v = draw_f(draws);
    let rest = max(0.5 - abs(u), 1e-9);
    let k = floor((2.0 * a / rest + b) * u + rate + 0.43);
    if (rest >= 0.07 && v <= sure) {
      return k;
    }
    if (k >= 0.0 && (rest >= 0.013 || v <= rest) &&
        v * inverse_alpha <= gamma_density_f(k, rate) * (a / (rest * rest) + b)) {
      return k;
    }
  }
  return floor(rate);
}

// For shapes of at least one. Marsaglia and Tsang, "A simple method for generating gamma variables"
// (2000).
fn gamma_above_one_f(draws: ptr<function, Draws>, shape: f32) -> f32 {
  let d = shape - 0.333333343;
  let c = inverseSqrt(9.0 * d);
  for (var trial = 0; trial < 1000; trial++) {
    let x = draw_normal_f(draws);
    let root = 1.0 + c * x;
    if (root > 0.0) {
      let v = root * root * root;
      let u = draw_f(draws);
      if (log_f(u) < 0.5 * x * x + d * (1.0 - v + log_f(v))) {
        return d * v;
      }
    }
  }
  return d;
}

fn standard_gamma_f(draws: ptr<function, Draws>, alpha: f32) -> f32 {
  if (is_nan_f(alpha)) {
    return alpha;
  }
  const kLeast = 1.17549435e-38; // a gradient divides by it
  if (alpha <= 0.0) {
    return kLeast;
  }
  if (alpha < 1.0) {
    let scale = pow_f(draw_f(draws), div_f(1.0, alpha));
    return max(scale * gamma_above_one_f(draws, alpha + 1.0), kLeast);
  }
  return max(gamma_above_one_f(draws, alpha), kLeast);
}

// Its logarithm, which does not underflow where alpha is small.
fn log_standard_gamma_f(draws: ptr<function, Draws>, alpha: f32) -> f32 {
  if (is_nan_f(alpha)) {
    return alpha;
  }
  const kLeast = -3e38;
  if (alpha <= 0.0) {
    return kLeast;
  }
  if (alpha < 1.0) {
    let log_scale = div_f(log_f(draw_f(draws)), alpha);
    return max(log_scale + log_f(gamma_above_one_f(draws, alpha + 1.0)), kLeast);
  }
  return log_f(gamma_above_one_f(draws, alpha));
}
