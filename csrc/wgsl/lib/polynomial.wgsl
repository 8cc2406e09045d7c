// Orthogonal polynomials by their three-term recurrences (DLMF 18.9). Like PyTorch, the degree is a
// float that is truncated, a negative degree gives 0, and Chebyshev polynomials of a high degree
// use their trigonometric form, which does not accumulate rounding errors. A recurrence stops when
// it has overflowed to NaN. Where it does not overflow, huge degrees have a form of their own: a
// recurrence of 2^31 steps, even for an element beyond the tensor's end, would block the device
// until the driver resets it.
const recurrence_limit: i32 = 1 << 20;

// p_n of the recurrence p_k = 2x p_(k-1) - p_(k-2) from p_0 = 1 and the given p_1.
fn chebyshev_recurrence_f(x: f32, first: f32, degree: i32) -> f32 {
  var previous = 1.0;
  var current = first;
  for (var k = 1; k < degree && !is_nan_f(current); k++) {
    let next = 2.0 * x * current - previous;
    previous = current;
    current = next;
  }
  return select(current, 1.0, degree == 0);
}

fn alternating_f(degree: i32) -> f32 {
  return select(1.0, -1.0, (degree & 1) == 1);
}

fn chebyshev_t_f(x: f32, n: f32) -> f32 {
  let degree = i_from_f(n);
  if (degree < 0) {
    return 0.0;
  }
  if (abs(x) == 1.0) {
    return select(alternating_f(degree), 1.0, x > 0.0);
  }
  if (degree > 6 && abs(x) < 1.0) {
    return cos_f(f32(degree) * acos_f(x));
  }
  return chebyshev_recurrence_f(x, x, degree);
}

fn chebyshev_u_f(x: f32, n: f32) -> f32 {
  let degree = i_from_f(n);
  if (degree < 0) {
    return 0.0;
  }
  if (abs(x) == 1.0) {
    return f32(degree + 1) * select(alternating_f(degree), 1.0, x > 0.0);
  }
  if (degree > 8 && abs(x) < 1.0) {
    let angle = acos_f(x);
    return sin_f(f32(degree + 1) * angle) / sin_f(angle);
  }
  return chebyshev_recurrence_f(x, 2.0 * x, degree);
}

fn chebyshev_v_f(x: f32, n: f32) -> f32 {
  let degree = i_from_f(n);
  if (degree < 0) {
    return 0.0;
  }
  if (abs(x) == 1.0) {
    return select(f32(2 * degree + 1) * alternating_f(degree), 1.0, x > 0.0);
  }
  if (degree > 8 && abs(x) < 1.0) {
    let angle = acos_f(x);
    return cos_f((f32(degree) + 0.5) * angle) / cos_f(0.5 * angle);
  }
  return chebyshev_recurrence_f(x, 2.0 * x - 1.0, degree);
}

fn chebyshev_w_f(x: f32, n: f32) -> f32 {
  let degree = i_from_f(n);
  if (degree < 0) {
    return 0.0;
  }
  if (abs(x) == 1.0) {
    return select(alternating_f(degree), f32(2 * degree + 1), x > 0.0);
  }
  if (degree > 8 && abs(x) < 1.0) {
    let angle = acos_f(x);
    return sin_f((f32(degree) + 0.5) * angle) / sin_f(0.5 * angle);
  }
  return chebyshev_recurrence_f(x, 2.0 * x + 1.0, degree);
}

// The shifted polynomials live on [0, 1].
fn shifted_chebyshev_t_f(x: f32, n: f32) -> f32 {
  return chebyshev_t_f(2.0 * x - 1.0, n);
}

fn shifted_chebyshev_u_f(x: f32, n: f32) -> f32 {
  return chebyshev_u_f(2.0 * x - 1.0, n);
}

fn shifted_chebyshev_v_f(x: f32, n: f32) -> f32 {
  return chebyshev_v_f(2.0 * x - 1.0, n);
}

fn shifted_chebyshev_w_f(x: f32, n: f32) -> f32 {
  return chebyshev_w_f(2.0 * x - 1.0, n);
}

// PyTorch's limit for float32, beyond which Hermite polynomials are NaN.
const hermite_limit: i32 = 128;

fn hermite_h_f(x: f32, n: f32) -> f32 {
  let degree = i_from_f(n);
  if (degree <= 0) {
    return select(1.0, 0.0, degree < 0);
  }
  if (degree > hermite_limit) {
    return nan_f();
  }
  var previous = 1.0;
  var current = 2.0 * x;
  for (var k = 1; k < degree && !is_nan_f(current); k++) {
    let next = 2.0 * x * current - f32(2 * k) * previous;
    previous = current;
    current = next;
  }
  return current;
}

fn hermite_he_f(x: f32, n: f32) -> f32 {
  let degree = i_from_f(n);
  if (degree <= 0) {
    return select(1.0, 0.0, degree < 0);
  }
  if (degree > hermite_limit) {
    return nan_f();
  }
  var previous = 1.0;
  var current = x;
  for (var k = 1; k < degree && !is_nan_f(current); k++) {
    let next = x * current - f32(k) * previous;
    previous = current;
    current = next;
  }
  return current;
}

// Hilb's asymptotic form (DLMF 18.15.14), also left of zero.
fn laguerre_of_high_degree_f(x: f32, degree: f32) -> f32 {
  let argument = 2.0 * sqrt_f(abs(x) * (degree + 0.5));
  if (x < 0.0) {
    return exp_f(0.5 * x) * i0_f(argument);
  }
  return exp_f(0.5 * x) * bessel_j0_f(argument);
}

fn laguerre_l_f(x: f32, n: f32) -> f32 {
  let degree = i_from_f(n);
  if (degree <= 0 || x == 0.0) {
    return select(1.0, 0.0, degree < 0);
  }
  if (degree > recurrence_limit && x > -1.0 && x < 200.0) {
    return laguerre_of_high_degree_f(x, f32(degree));
  }
  var previous = 1.0;
  var current = 1.0 - x;
  for (var k = 1; k < degree && !is_nan_f(current); k++) {
    let next = ((f32(2 * k + 1) - x) * current - f32(k) * previous) / f32(k + 1);
    previous = current;
    current = next;
  }
  return current;
}

fn legendre_p_f(x: f32, n: f32) -> f32 {
  let degree = i_from_f(n);
  if (degree <= 0) {
    return select(1.0, 0.0, degree < 0);
  }
  if (abs(x) == 1.0) {
    return select(alternating_f(degree), 1.0, x > 0.0);
  }
  if (degree > recurrence_limit && abs(x) < 1.0) {
    // Hilb's asymptotic form for the right half of the interval (Szego 8.21.17)
    let angle = acos_f(abs(x));
    let right = sqrt_f(angle / sin_f(angle)) * bessel_j0_f((f32(degree) + 0.5) * angle);
    return select(alternating_f(degree), 1.0, x >= 0.0) * right;
  }
  var previous = 1.0;
  var current = x;
  for (var k = 1; k < degree && !is_nan_f(current); k++) {
    let next = (f32(2 * k + 1) * x * current - f32(k) * previous) / f32(k + 1);
    previous = current;
    current = next;
  }
  return current;
}
