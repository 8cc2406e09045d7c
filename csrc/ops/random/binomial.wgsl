// Binomial numbers. Each element has a sequence of draws of its own.
//
// @operand out: out {f32}
// @operand trials: in {f32}
// @operand prob: in {f32}

struct Params {
  size: u32,
  philox: vec4<u32>, // key, counter
}

const kTrials = 1000;

fn stirling_f(k: f32) -> f32 {
  let inverse = div_f(1.0, k);
  return inverse * (0.0833333333 - 0.00277777778 * inverse * inverse);
}

// For p <= 1/2: by waiting times, or by transformed rejection (Hoermann 1993, BTRS).
fn binomial_half(draws: ptr<function, Draws>, n: f32, p: f32) -> f32 {
  if (n * p < 10.0) {
    let scale = div_f(1.0, log1p_f(-p));
    var waited = 0.0;
    var k = 0.0;
    while (k < 1000.0) {
      waited += max(ceil(log_f(draw_f(draws)) * scale), 1.0);
      if (waited > n) {
        break;
      }
      k += 1.0;
    }
    return k;
  }
  let q = 1.0 - p;
  let deviation = sqrt_f(n * p * q);
  let b = 1.15 + 2.53 * deviation;
  let a = -0.0873 + 0.0248 * b + 0.01 * p;
  let center = n * p + 0.5;
  let ready = 0.92 - 4.2 / b;
  let odds = div_f(p, q);
  let alpha = (2.83 + 5.1 / b) * deviation;
  let m = floor((n + 1.0) * p);
  for (var trial = 0; trial < kTrials; trial++) {
    let u = draw_f(draws) - 0.5;
    let v = draw_f(draws);
    let s = 0.5 - abs(u);
    if (s <= 0.0) {
      continue;
    }
    let k = floor((2.0 * a / s + b) * u + center);
    if (s >= 0.07 && v <= ready) {
      return k;
    }
    if (k < 0.0 || k > n) {
      continue;
    }
    let bound = (m + 0.5) * log_f(div_f(m + 1.0, odds * (n - m + 1.0))) +
                (n + 1.0) * log1p_f(div_f(k - m, n - k + 1.0)) +
                (k + 0.5) * log_f(div_f(odds * (n - k + 1.0), k + 1.0)) +
                stirling_f(m + 1.0) + stirling_f(n - m + 1.0) - stirling_f(k + 1.0) -
                stirling_f(n - k + 1.0);
    if (log_f(v * alpha / (a / (s * s) + b)) <= bound) {
      return k;
    }
  }
  return m;
}

fn binomial_sample(draws: ptr<function, Draws>, n: f32, p: f32) -> f32 {
  if (is_nan_f(n) || is_nan_f(p)) {
    return nan_f();
  }
  if (n <= 0.0 || p <= 0.0) {
    return 0.0;
  }
  if (p >= 1.0) {
    return n;
  }
  if (p <= 0.5) {
    return binomial_half(draws, n, p);
  }
  return n - binomial_half(draws, n, 1.0 - p);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let element = (group.y * groups.x + group.x) * 256u + local;
  if (element < p.size) {
    var draws = Draws(p.philox.xy, p.philox.zw, element, 0u, vec4<u32>(0u));
    store_out(p.out_at + element, binomial_sample(&draws, load_trials(p.trials_at + element),
                                                  load_prob(p.prob_at + element)));
  }
}
