// The code of the nearest value, by a search among the middles of neighbouring values. What is in the middle gets the
// lower one, and NaN the last one.

// The number of `bounds` from `first` on that are below x, where there are `count`, a power of two: ascending, and the
// last one infinite. The kernel declares `bounds`.
fn bounds_below(x: f32, first: u32, count: u32) -> u32 {
  var below = 0u;
  let is_nan = is_nan_f(x);
  for (var part = count / 2u; part > 0u; part /= 2u) {
    if (is_nan || bounds[first + below + part - 1u] < x) {
      below += part;
    }
  }
  return below;
}

// An element over its block's greatest magnitude. A whole block is multiplied by the reciprocal and a partial one, at
// the tensor's end, is divided, as bitsandbytes does on the CPU: codes must be the same in the last bit.
fn scaled(x: f32, absmax: f32, is_partial: bool) -> f32 {
  let least = 1.0e-37; // below, magnitudes and their reciprocals may not be normal
  if (is_nan_f(x) || is_nan_f(absmax)) {
    return nan_f();
  }
  if (is_inf_f(absmax)) {
    return select(0.0, nan_f(), is_inf_f(x));
  }
  if (is_partial) {
    return clamp(div_f(x, max(absmax, least)), -1.0, 1.0);
  }
  return clamp(x * div_f(1.0, max(absmax, least)), -1.0, 1.0);
}
