// Accumulators of generated kernels, which take values one by one or four at a time.

const lowest_f: f32 = -3.4028234663852886e+38;

// The bounds are numbers.
fn bound_f(x: f32, low: f32, high: f32) -> f32 {
  return select(min(max(x, low), high), x, is_nan_f(x));
}

// The largest and the smallest number of an accumulator and four values; NaN if one of them is. max() and min()
// may drop NaN.
fn push_four_max_f(a: f32, v: vec4<f32>) -> f32 {
  let most = max(max(max(v.x, v.y), max(v.z, v.w)), a);
  return select(select(most, nan_f(), has_nan_f(v)), a, is_nan_f(a));
}

fn push_four_min_f(a: f32, v: vec4<f32>) -> f32 {
  let least = min(min(min(v.x, v.y), min(v.z, v.w)), a);
  return select(select(least, nan_f(), has_nan_f(v)), a, is_nan_f(a));
}

fn has_nan_f(v: vec4<f32>) -> bool {
  let magnitudes = bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu);
  let pairs = max(magnitudes.xy, magnitudes.zw);
  return max(pairs.x, pairs.y) > 0x7f800000u;
}

fn push_moment_f(a: Moments_f, v: f32) -> Moments_f {
  let count = a.count + 1.0;
  let distance = v - a.mean;
  let mean = a.mean + distance / count;
  return Moments_f(mean, a.squares + distance * (v - mean), count);
}

// One division for four values.
fn push_four_moments_f(a: Moments_f, v: vec4<f32>) -> Moments_f {
  let mean = ((v.x + v.y) + (v.z + v.w)) * 0.25;
  let d = v - mean;
  let count = a.count + 4.0;
  let share = 4.0 / count;
  let distance = mean - a.mean;
  let squares = (d.x * d.x + d.y * d.y) + (d.z * d.z + d.w * d.w);
  return Moments_f(a.mean + distance * share,
                   a.squares + squares + distance * distance * a.count * share, count);
}

// The sum of exp(x - most) over the values x so far; `most` is their maximum. `most` starts at the
// lowest finite number, so that inf - inf does not occur.
struct ExpSum_f {
  most: f32,
  total: f32,
}

fn merge_exp_sums_f(a: ExpSum_f, b: ExpSum_f) -> ExpSum_f {
  let most = max_f(a.most, b.most);
  return ExpSum_f(most, a.total * exp_falling_f(a.most - most) + b.total * exp_falling_f(b.most - most));
}

// One exponential for each value.
fn push_exp_f(a: ExpSum_f, v: f32) -> ExpSum_f {
  let distance = v - a.most;
  if (is_nan_f(distance)) {
    return ExpSum_f(v, nan_f());
  }
  let factor = exp_falling_f(-abs(distance));
  return ExpSum_f(max(a.most, v),
                  select(a.total + factor, a.total * factor + 1.0, distance > 0.0));
}

fn push_four_exps_f(a: ExpSum_f, v: vec4<f32>) -> ExpSum_f {
  let most = push_four_max_f(a.most, v);
  let total = (exp_falling_f(v.x - most) + exp_falling_f(v.y - most)) + (exp_falling_f(v.z - most) + exp_falling_f(v.w - most));
  return ExpSum_f(most, a.total * exp_falling_f(a.most - most) + total);
}
