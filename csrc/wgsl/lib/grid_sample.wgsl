// Grid sampling along one dimension: which input cells contribute to the sample at a coordinate.
// Coordinates run from -1 to 1.

// Cells, their weights and the derivatives of the weights by the coordinate. Cells outside are -1.
struct GridAxis {
  cells: vec4<i32>,
  weights: vec4<f32>,
  slopes: vec4<f32>,
  count: u32,
  base: f32, // part of the result whatever the cells hold: 0 or NaN
}

// A position in cells and its derivative by the coordinate.
fn grid_position(coordinate: f32, size: u32, align_corners: bool) -> vec2<f32> {
  let n = f32(size);
  if (align_corners) {
    return vec2<f32>((coordinate + 1.0) / 2.0 * (n - 1.0), (n - 1.0) / 2.0);
  }
  return vec2<f32>(((coordinate + 1.0) * n - 1.0) / 2.0, n / 2.0);
}

fn grid_clip(position: vec2<f32>, size: u32) -> vec2<f32> {
  let last = f32(size - 1u);
  let inside = position.x > 0.0 && position.x < last;
  return vec2<f32>(clamp(position.x, 0.0, last), select(0.0, position.y, inside));
}

fn grid_reflect(position: vec2<f32>, size: u32, align_corners: bool) -> vec2<f32> {
  let low = select(-0.5, 0.0, align_corners);
  let span = f32(size) - select(0.0, 1.0, align_corners);
  if (span == 0.0) {
    return vec2<f32>(0.0);
  }
  let distance = abs(position.x - low);
  let slope = select(position.y, -position.y, position.x < low);
  let flips = floor(distance / span);
  let extra = distance - flips * span;
  if (flips - 2.0 * floor(flips / 2.0) == 0.0) {
    return vec2<f32>(extra + low, slope);
  }
  return vec2<f32>(span - extra + low, -slope);
}

// With the padding mode's treatment of what lies outside.
fn grid_pad(position: vec2<f32>, size: u32, padding: u32, align_corners: bool) -> vec2<f32> {
  if (padding == 1u) {
    return grid_clip(position, size);
  }
  if (padding == 2u) {
    return grid_clip(grid_reflect(position, size, align_corners), size);
  }
  return position;
}

// The cell number, -1 outside. Positions beyond the range of i32 are allowed.
fn grid_cell(position: f32, size: u32) -> i32 {
  if (!(position >= 0.0) || !(position < f32(size))) {
    return -1;
  }
  return min(i32(position), i32(size) - 1);
}

fn grid_single() -> GridAxis {
  return GridAxis(vec4<i32>(0), vec4<f32>(1.0), vec4<f32>(0.0), 1u, 0.0);
}

fn grid_nearest(coordinate: f32, size: u32, padding: u32, align_corners: bool) -> GridAxis {
  var axis = grid_single();
  let position = grid_position(coordinate, size, align_corners);
  let cell = round(grid_pad(position, size, padding, align_corners).x);
  axis.cells.x = grid_cell(cell, size);
  return axis;
}

fn grid_linear(coordinate: f32, size: u32, padding: u32, align_corners: bool) -> GridAxis {
  let plain = grid_position(coordinate, size, align_corners);
  let position = grid_pad(plain, size, padding, align_corners);
  let first = floor(position.x);
  let part = position.x - first;
  var axis = grid_single();
  axis.count = 2u;
  axis.cells = vec4<i32>(grid_cell(first, size), grid_cell(first + 1.0, size), -1, -1);
  axis.weights = vec4<f32>(1.0 - part, part, 0.0, 0.0);
  axis.slopes = vec4<f32>(-position.y, position.y, 0.0, 0.0);
  return axis;
}

fn grid_cubic_slope(distance: f32, a: f32) -> f32 {
  let x = abs(distance);
  let slope = select((3.0 * x * x - 10.0 * x + 8.0) * a, (3.0 * (a + 2.0) * x - 2.0 * (a + 3.0)) * x,
                     x < 1.0);
  return select(slope, -slope, distance < 0.0);
}

fn grid_cubic(coordinate: f32, size: u32, padding: u32, align_corners: bool) -> GridAxis {
  let position = grid_position(coordinate, size, align_corners);
  let first = floor(position.x);
  let part = position.x - first;
  var axis = grid_single();
  axis.count = 4u;
  // Weights of a place that is not finite are NaN, also those of cells outside.
  axis.base = select(0.0, nan_f(), !is_finite_f(position.x));
  for (var k = 0u; k < 4u; k++) {
    let at = vec2<f32>(first + f32(k) - 1.0, 0.0);
    let distance = part + 1.0 - f32(k);
    // Each cell is padded by itself, so the slope does not see the padding.
    axis.cells[k] = grid_cell(grid_pad(at, size, padding, align_corners).x, size);
    axis.weights[k] = cubic_convolution_f(distance, -0.75);
    axis.slopes[k] = grid_cubic_slope(distance, -0.75) * position.y;
  }
  return axis;
}
