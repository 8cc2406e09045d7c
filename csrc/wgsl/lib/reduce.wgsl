// Accumulators of reductions (ops/reduce/rows.yaml).

const lowest_i: i32 = -2147483647 - 1;
const highest_i: i32 = 2147483647;
const lowest_l: vec2<u32> = vec2<u32>(0u, 0x80000000u);
const highest_l: vec2<u32> = vec2<u32>(0xffffffffu, 0x7fffffffu);

// The index of the identity: larger than all, so that any element of equal value wins.
const no_index: u32 = 0xffffffffu;

struct Indexed_f {
  value: f32,
  index: u32,
}

struct Indexed_i {
  value: i32,
  index: u32,
}

struct Indexed_l {
  value: vec2<u32>,
  index: u32,
}

fn l_from_index(index: u32) -> vec2<u32> {
  return vec2<u32>(index, 0u);
}

// `a` where it is better, or as good and first; else `b`. The first NaN is better than all.
fn better_f(a: Indexed_f, b: Indexed_f, a_is_better: bool) -> Indexed_f {
  let nan_a = is_nan_f(a.value);
  let nan_b = is_nan_f(b.value);
  let first = a.index < b.index;
  if (nan_a || nan_b) {
    if (nan_a && (!nan_b || first)) {
      return a;
    }
    return b;
  }
  if (a_is_better || (a.value == b.value && first)) {
    return a;
  }
  return b;
}

fn larger_f(a: Indexed_f, b: Indexed_f) -> Indexed_f {
  return better_f(a, b, a.value > b.value);
}

fn smaller_f(a: Indexed_f, b: Indexed_f) -> Indexed_f {
  return better_f(a, b, a.value < b.value);
}

fn larger_i(a: Indexed_i, b: Indexed_i) -> Indexed_i {
  if (a.value > b.value || (a.value == b.value && a.index < b.index)) {
    return a;
  }
  return b;
}

fn smaller_i(a: Indexed_i, b: Indexed_i) -> Indexed_i {
  if (a.value < b.value || (a.value == b.value && a.index < b.index)) {
    return a;
  }
  return b;
}

fn larger_l(a: Indexed_l, b: Indexed_l) -> Indexed_l {
  if (gt_l(a.value, b.value) || (eq_l(a.value, b.value) && a.index < b.index)) {
    return a;
  }
  return b;
}

fn smaller_l(a: Indexed_l, b: Indexed_l) -> Indexed_l {
  if (lt_l(a.value, b.value) || (eq_l(a.value, b.value) && a.index < b.index)) {
    return a;
  }
  return b;
}

// Mean, sum of squared distances from it, and number of elements.
struct Moments_f {
  mean: f32,
  squares: f32,
  count: f32,
}

// Chan's update: no cancellation, whatever the mean.
fn merge_moments_f(a: Moments_f, b: Moments_f) -> Moments_f {
  if (b.count == 0.0) {
    return a;
  }
  if (a.count == 0.0) {
    return b;
  }
  let count = a.count + b.count;
  let share = b.count / count;
  let distance = b.mean - a.mean;
  return Moments_f(a.mean + distance * share,
                   a.squares + b.squares + distance * distance * a.count * share, count);
}

fn spread_f(a: Moments_f, correction: f32, take_root: f32) -> f32 {
  let variance = div_f(a.squares, max(a.count - correction, 0.0));
  if (take_root != 0.0) {
    return sqrt_f(variance);
  }
  return variance;
}
