// Resampling along one dimension: which input cells (taps) contribute to an output cell, with which
// weights. A tap before the first cell or behind the last one means that cell.

struct Taps {
  first: i32,
  count: i32,
  at: f32,    // what the weights depend on
  scale: f32,
  factor: f32, // of every weight
}

// The position of the centre of output cell o, in input cells.
fn resampled_at(o: u32, scale: f32, align_corners: bool) -> f32 {
  return select(scale * (f32(o) + 0.5) - 0.5, scale * f32(o), align_corners);
}

fn nearest_taps(o: u32, size: u32, scale: f32, align_corners: bool) -> Taps {
  return Taps(min(i32(f32(o) * scale), i32(size) - 1), 1, 0.0, scale, 1.0);
}

fn nearest_exact_taps(o: u32, size: u32, scale: f32, align_corners: bool) -> Taps {
  return Taps(min(i32((f32(o) + 0.5) * scale), i32(size) - 1), 1, 0.0, scale, 1.0);
}

fn nearest_weight(taps: Taps, k: i32) -> f32 { return 1.0; }

fn nearest_exact_weight(taps: Taps, k: i32) -> f32 { return 1.0; }

fn linear_taps(o: u32, size: u32, scale: f32, align_corners: bool) -> Taps {
  let at = max(resampled_at(o, scale, align_corners), 0.0);
  let first = min(i32(at), i32(size) - 1);
  let part = min(at - f32(first), 1.0);
  // A neighbour of weight 0 is left out, because it may be infinite.
  return Taps(first, select(2, 1, part == 0.0), part, scale, 1.0);
}

fn linear_weight(taps: Taps, k: i32) -> f32 {
  return select(taps.at, 1.0 - taps.at, k == 0);
}

// Cubic convolution, a is its free parameter; x the distance.
fn cubic_convolution_f(distance: f32, a: f32) -> f32 {
  let x = abs(distance);
  if (x < 1.0) {
    return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
  }
  return select(0.0, (((x - 5.0) * x + 8.0) * x - 4.0) * a, x < 2.0);
}

fn cubic_taps(o: u32, size: u32, scale: f32, align_corners: bool) -> Taps {
  if (size == 1u) {
    // All taps are the same cell, such as that of a missing dimension. Weights of both signs would
    // turn an infinite value into NaN.
    return Taps(0, 1, -1.0, scale, 1.0);
  }
  let at = resampled_at(o, scale, align_corners);
  let first = min(i32(floor(at)), i32(size) - 1);
  return Taps(first - 1, 4, clamp(at - f32(first), 0.0, 1.0), scale, 1.0);
}

fn cubic_weight(taps: Taps, k: i32) -> f32 {
  return cubic_convolution_f(taps.at + f32(1 - k), -0.75);
}

// With antialiasing, an output cell takes in all input cells that its enlarged filter reaches.
fn wide_taps(o: u32, size: u32, scale: f32, radius: f32) -> Taps {
  let centre = scale * (f32(o) + 0.5);
  let support = radius * max(scale, 1.0);
  let first = max(i32(centre - support + 0.5), 0);
  let last = min(i32(centre + support + 0.5), i32(size));
  return Taps(first, max(last - first, 0), f32(first) - centre + 0.5, 1.0 / max(scale, 1.0), 1.0);
}

fn linear_aa_taps(o: u32, size: u32, scale: f32, align_corners: bool) -> Taps {
  var taps = wide_taps(o, size, scale, 1.0);
  var total = 0.0;
  for (var k = 0; k < taps.count; k++) {
    total += linear_aa_weight(taps, k);
  }
  taps.factor = select(1.0 / total, 1.0, total == 0.0);
  return taps;
}

fn linear_aa_weight(taps: Taps, k: i32) -> f32 {
  return max(1.0 - abs((taps.at + f32(k)) * taps.scale), 0.0) * taps.factor;
}

fn cubic_aa_taps(o: u32, size: u32, scale: f32, align_corners: bool) -> Taps {
  var taps = wide_taps(o, size, scale, 2.0);
  var total = 0.0;
  for (var k = 0; k < taps.count; k++) {
    total += cubic_aa_weight(taps, k);
  }
  taps.factor = select(1.0 / total, 1.0, total == 0.0);
  return taps;
}

fn cubic_aa_weight(taps: Taps, k: i32) -> f32 {
  return cubic_convolution_f((taps.at + f32(k)) * taps.scale, -0.5) * taps.factor;
}

// The output cells that may hold input cell i: from .x to below .y. `shift` is 0.0 where corners
// are aligned, else 0.5.
fn upsample_cover(i: u32, size: u32, outs: u32, scale: f32, shift: f32, radius: f32) -> vec2<u32> {
  let reach = radius * max(scale, 1.0) + 1.0;
  var first = 0u;
  var last = outs;
  // The outermost cells stand for everything beyond them.
  if (i > 0u && scale > 0.0) {
    first = min(u32(max((f32(i) - reach + shift) / scale - shift - 1.0, 0.0)), outs);
  }
  if (i + 1u < size && scale > 0.0) {
    last = min(u32(max((f32(i) + reach + shift) / scale - shift + 3.0, 0.0)), outs);
  }
  return vec2<u32>(first, last);
}
