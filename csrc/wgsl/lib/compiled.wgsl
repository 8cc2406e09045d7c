// Accumulators of generated kernels, which take values one by one or four at a time.

const lowest_f: f32 = -3.4028234663852886e+38;

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
  return ExpSum_f(most, a.total * exp_f(a.most - most) + b.total * exp_f(b.most - most));
}

// One exponential for each value.
fn push_exp_f(a: ExpSum_f, v: f32) -> ExpSum_f {
  let distance = v - a.most;
  if (is_nan_f(distance)) {
    return ExpSum_f(v, nan_f());
  }
  let factor = exp_f(-abs(distance));
  return ExpSum_f(max(a.most, v),
                  select(a.total + factor, a.total * factor + 1.0, distance > 0.0));
}

fn push_four_exps_f(a: ExpSum_f, v: vec4<f32>) -> ExpSum_f {
  let most = max_f(max_f(max_f(v.x, v.y), max_f(v.z, v.w)), a.most);
  let total = (exp_f(v.x - most) + exp_f(v.y - most)) + (exp_f(v.z - most) + exp_f(v.w - most));
  return ExpSum_f(most, a.total * exp_f(a.most - most) + total);
}
