// The samples of a bin, for roi_align and ps_roi_align: points between pixels, interpolated linearly. A kernel that
// imports visit_samples defines visit(above, below, y, x): where the two rows of pixels beside a sample begin, and its
// taps along both sides.

import package::vision::roi::{Params, Bin, roi};

// Samples first to last - 1 of `grid` along one side.
struct Samples {
  begin: f32,
  bin: f32,
  grid: f32,
  first: i32,
  last: i32,
}

fn sample_number(at: f32) -> i32 {
  return i32(floor(clamp(at, -2e9, 2e9)));
}

// Divisions are rounded as on the CPU (div_f): a bin of two pixels must not get a third sample.
fn samples_of(low: f32, high: f32, number: u32, bins: u32, size: u32) -> Samples {
  let start = low * p.scale - p.offset;
  var length = (high * p.scale - p.offset) - start;
  if (p.at_least_one != 0u) {
    length = max(length, 1.0);
  }
  var samples = Samples();
  samples.bin = div_f(length, f32(bins));
  samples.begin = start + f32(number) * samples.bin;
  samples.grid = select(ceil(samples.bin), f32(p.sampling), p.sampling > 0);
  if (!is_finite_f(samples.begin) || !is_finite_f(samples.bin)) {
    samples.grid = 0.0;
  }
  samples.first = 0;
  samples.last = i32(clamp(samples.grid, 0.0, 2147483520.0));
  // A region may be much larger than the image. Samples outside of it are zero, so most are not visited.
  let step = samples.bin / samples.grid;
  if (samples.grid > 16.0 && step > 1e-6) {
    samples.first = clamp(sample_number((-1.0 - samples.begin) / step) - 2, 0, samples.last);
    samples.last = clamp(sample_number(ceil((f32(size) - samples.begin) / step)) + 2, samples.first, samples.last);
  }
  return samples;
}

fn sample_at(samples: Samples, k: i32) -> f32 {
  return samples.begin + div_f((f32(k) + 0.5) * samples.bin, samples.grid);
}

// The two pixels beside a point, and the weight of the second.
struct Taps {
  low: u32,
  high: u32,
  weight: f32,
  inside: bool,
}

fn taps_of(at: f32, size: u32) -> Taps {
  var taps = Taps();
  taps.inside = at >= -1.0 && at <= f32(size) && !is_nan_f(at);
  if (!taps.inside) {
    return taps;
  }
  let place = max(at, 0.0);
  taps.low = u32(place);
  if (taps.low >= size - 1u) {
    taps.low = size - 1u;
    taps.high = taps.low;
  } else {
    taps.high = taps.low + 1u;
    taps.weight = place - f32(taps.low);
  }
  return taps;
}

fn rows_of(bin: Bin) -> Samples {
  return samples_of(roi(bin.region, 2u), roi(bin.region, 4u), bin.row, p.pooled_height, p.height);
}

fn columns_of(bin: Bin) -> Samples {
  return samples_of(roi(bin.region, 1u), roi(bin.region, 3u), bin.column, p.pooled_width, p.width);
}

// Visits each sample inside of the image, whose plane begins at `plane`.
fn visit_samples(rows: Samples, columns: Samples, plane: u32) {
  for (var iy = rows.first; iy < rows.last; iy++) {
    let y = taps_of(sample_at(rows, iy), p.height);
    if (!y.inside) {
      continue;
    }
    for (var ix = columns.first; ix < columns.last; ix++) {
      let x = taps_of(sample_at(columns, ix), p.width);
      if (x.inside) {
        visit(plane + y.low * p.width, plane + y.high * p.width, y, x);
      }
    }
  }
}
