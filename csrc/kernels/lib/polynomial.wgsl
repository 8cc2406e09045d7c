// Orthogonal polynomials by their three-term recurrences (DLMF 18.9). Like PyTorch, the degree is a
// float that is truncated, a negative degree gives 0, and Chebyshev polynomials of a high degree
// use their trigonometric form, which has no sum of rounding errors. A recurrence that has
// overflowed to NaN stops, so that a huge degree does not hold up the device.

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

fn laguerre_l_f(x: f32, n: f32) -> f32 {
  let degree = i_from_f(n);
  if (degree <= 0 || x == 0.0) {
    return select(1.0, 0.0, degree < 0);
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
  var previous = 1.0;
  var current = x;
  for (var k = 1; k < degree && !is_nan_f(current); k++) {
    let next = (f32(2 * k + 1) * x * current - f32(k) * previous) / f32(k + 1);
    previous = current;
    current = next;
  }
  return current;
}
