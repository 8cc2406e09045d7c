// Gradients of gamma and Dirichlet samples with respect to their parameters. For a sample x with distribution
// function F(x; a) and density f, the gradient is -(dF/da) / f(x). The score s = d log f / da has mean zero, so
// the gradient is, up to its sign, the integral of s(t) f(t) / f(x) over either tail. The code takes the tail on
// which s has one sign, so that nothing cancels.

// Nodes in (0, 1/2) of Gauss and Legendre's rule of 20 nodes in (0, 1), and their weights.
fn legendre_node_f(k: u32) -> vec2<f32> {
  var nodes = array<vec2<f32>, 10>(
      vec2<f32>(0.00343570041, 0.00880700357), vec2<f32>(0.0180140364, 0.0203007149),
      vec2<f32>(0.0438827859, 0.0313360242), vec2<f32>(0.0804415141, 0.0416383708),
      vec2<f32>(0.126834047, 0.0509650599), vec2<f32>(0.18197316, 0.059097266),
      vec2<f32>(0.244566499, 0.0658443192), vec2<f32>(0.313146956, 0.0710480547),
      vec2<f32>(0.386107074, 0.0745864932), vec2<f32>(0.461736739, 0.0763766936));
  if (k < 10u) {
    return nodes[k];
  }
  let mirrored = nodes[19u - k];
  return vec2<f32>(1.0 - mirrored.x, mirrored.y);
}

// e^x - 1 - x
fn expm1_excess_f(x: f32) -> f32 {
  if (abs(x) < 0.5) {
    return x * x * (((((2.48015873e-5 * x + 1.98412698e-4) * x + 0.00138888889) * x +
                      0.00833333333) * x + 0.0416666667) * x * x + (0.166666667 * x + 0.5));
  }
  return expm1_f(x) - x;
}

// digamma(a + b) - digamma(a) for positive a and b.
fn digamma_step_f(a: f32, b: f32) -> f32 {
  if (a >= 8.0) {
    let sum = a + b;
    let i = div_f(1.0, a);
    let j = div_f(1.0, sum);
    return log1p_f(div_f(b, a)) + 0.5 * b * i * j + 0.0833333333 * (i - j) * (i + j);
  }
  if (b < 0.03 * min(1.0, a)) {
    return b * trigamma_f(a + 0.5 * b);
  }
  return digamma_f(a + b) - digamma_f(a);
}

// digamma(a) - log(x)
fn digamma_above_log_f(a: f32, x: f32) -> f32 {
  if (a >= 8.0) {
    let i = div_f(1.0, a);
    return -log1p_f(div_f(x - a, a)) - i * (0.5 + i * (0.0833333333 - 0.00833333333 * i * i));
  }
  return digamma_f(a) - log_f(x);
}

// Whether an integrand with this logarithm is too small to count.
fn is_negligible_f(exponent: f32) -> bool {
  return !(exponent > -17.0);
}

// The logarithm of the density at x e^w, times x e^w, over that at x.
fn gamma_exponent_f(alpha: f32, x: f32, w: f32) -> f32 {
  return (alpha - x) * w - x * expm1_excess_f(w);
}

fn standard_gamma_grad_f(alpha: f32, x: f32) -> f32 {
  if (is_nan_f(alpha) || is_nan_f(x)) {
    return nan_f();
  }
  if (x <= 0.0 || alpha <= 0.0) {
    return 0.0;
  }
  if (x < 1.0) {
    // The lower tail with e^-t expanded.
    let c = digamma_f(alpha + 1.0) - log_f(x);
    var power = 1.0;
    var sum = div_f(c, alpha);
    for (var k = 1.0; k < 12.0; k += 1.0) {
      power *= -x / k;
      sum += power * div_f(c - div_f(k, alpha * (alpha + k)), alpha + k);
    }
    return x * exp_f(x) * sum;
  }
  let c = digamma_above_log_f(alpha, x);
  let side = select(-1.0, 1.0, c < 0.0);
  var width = 1.0;
  for (var k = 0; k < 100 && !is_negligible_f(gamma_exponent_f(alpha, x, side * width)); k++) {
    width *= 2.0;
  }
  for (var k = 0; k < 100 && is_negligible_f(gamma_exponent_f(alpha, x, side * width * 0.5)); k++) {
    width *= 0.5;
  }
  var sum = 0.0;
  for (var k = 0u; k < 20u; k++) {
    let node = legendre_node_f(k);
    let w = node.x * width;
    sum += node.y * (abs(c) + w) * exp_f(gamma_exponent_f(alpha, x, side * w));
  }
  return x * width * sum;
}

// The same for the density of Beta(alpha, total - alpha), divided by 1 - x as well.
fn dirichlet_grad_f(x: f32, alpha: f32, total: f32) -> f32 {
  if (is_nan_f(x) || is_nan_f(alpha) || is_nan_f(total)) {
    return nan_f();
  }
  let beta = total - alpha;
  if (x <= 0.0 || alpha <= 0.0 || beta <= 0.0) {
    return 0.0;
  }
  let y = 1.0 - x;
  let step = digamma_step_f(alpha, beta);
  if (total * x * y < 1.5) {
    return select(dirichlet_grad_near_one_f(y, alpha, beta, step),
                  dirichlet_grad_near_zero_f(x, alpha, beta), x <= 0.5);
  }
  let c = -step - log_f(x);
  let lower = c > 0.0;
  let ratio = select(div_f(y, x), div_f(x, y), lower);
  let rate = select(beta, alpha, lower);
  let power = select(alpha, beta, lower) - 1.0;
  var width = 1.0;
  for (var k = 0; k < 100 && !is_negligible_f(beta_exponent_f(rate, power, ratio, width)); k++) {
    width *= 2.0;
  }
  for (var k = 0; k < 100 && is_negligible_f(beta_exponent_f(rate, power, ratio, 0.5 * width)); k++) {
    width *= 0.5;
  }
  var sum = 0.0;
  for (var k = 0u; k < 20u; k++) {
    let node = legendre_node_f(k);
    let w = node.x * width;
    let score = select(log1p_f(-ratio * expm1_f(-w)), w, lower) + abs(c);
    sum += node.y * score * exp_f(beta_exponent_f(rate, power, ratio, w));
  }
  return width * sum * select(1.0, ratio, lower);
}

fn beta_exponent_f(rate: f32, power: f32, ratio: f32, w: f32) -> f32 {
  return power * log1p_f(-ratio * expm1_f(-w)) - rate * w;
}

// The lower tail with (1 - t)^(beta - 1) expanded.
fn dirichlet_grad_near_zero_f(x: f32, alpha: f32, beta: f32) -> f32 {
  let c = digamma_f(alpha + 1.0) - digamma_f(alpha + beta) - log_f(x);
  var term = 1.0;
  var sum = div_f(c, alpha);
  for (var k = 1.0; k < 24.0; k += 1.0) {
    term *= x * (k - beta) / k;
    sum += term * div_f(c - div_f(k, alpha * (alpha + k)), alpha + k);
  }
  return x * exp_f(-beta * log1p_f(-x)) * sum;
}

// The upper tail with t^(alpha - 1), and its derivative by alpha, expanded in y = 1 - x.
fn dirichlet_grad_near_one_f(y: f32, alpha: f32, beta: f32, step: f32) -> f32 {
  var term = 1.0;
  var derivative = 0.0;
  var sum = div_f(step, beta);
  for (var k = 1.0; k < 24.0; k += 1.0) {
    derivative = y * (derivative * (k - alpha) - term) / k;
    term *= y * (k - alpha) / k;
    sum += div_f(derivative + step * term, beta + k);
  }
  return exp_f((1.0 - alpha) * log1p_f(-y)) * sum;
}
