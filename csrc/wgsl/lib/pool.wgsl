// The windows of pooling along one dimension.

// Input cells first, first + step, ... below last; `padded` counts those in the padding, too.
struct Window {
  first: u32,
  last: u32,
  step: u32,
  padded: u32,
}

fn fixed_window(o: u32, size: u32, kernel: u32, stride: u32, padding: u32, step: u32) -> Window {
  let begin = i32(o * stride) - i32(padding);
  let end = begin + i32((kernel - 1u) * step + 1u);
  let before = u32(max(-begin, 0)) + step - 1u;
  let padded = min(end, i32(size + padding)) - begin;
  let first = u32(begin + i32(before / step * step));
  return Window(first, u32(min(end, i32(size))), step, u32(padded));
}

fn adaptive_window(o: u32, size: u32, out_size: u32) -> Window {
  let first = o * size / out_size;
  let last = ((o + 1u) * size + out_size - 1u) / out_size;
  return Window(first, last, 1u, last - first);
}

fn fractional_window(o: u32, size: u32, out_size: u32, kernel: u32, sample: f32) -> Window {
  var first = size - kernel;
  if (o + 1u < out_size) {
    let alpha = f32(first) / f32(out_size - 1u);
    first = min(u32((f32(o) + sample) * alpha) - u32(sample * alpha), first);
  }
  return Window(first, first + kernel, 1u, kernel);
}

// The windows that may hold input cell x: from .x to below .y.
fn fixed_cover(x: u32, outs: u32, kernel: u32, stride: u32, padding: u32, step: u32) -> vec2<u32> {
  let reach = (kernel - 1u) * step;
  let end = x + padding;
  let first = select(0u, (end - reach + stride - 1u) / stride, end > reach);
  return vec2<u32>(first, min(end / stride + 1u, outs));
}

fn adaptive_cover(x: u32, size: u32, out_size: u32) -> vec2<u32> {
  return vec2<u32>(x * out_size / size, ((x + 1u) * out_size + size - 1u) / size);
}

// This does not depend on the random sample: each window starts less than one cell away from o *
// alpha. alpha is at least 1, unless there is only one possible place.
fn fractional_cover(x: u32, size: u32, out_size: u32, kernel: u32) -> vec2<u32> {
  let places = size - kernel;
  if (places < out_size || out_size == 1u) {
    return vec2<u32>(0u, out_size);
  }
  let alpha = f32(places) / f32(out_size - 1u);
  let first = u32(max((f32(x) - f32(kernel)) / alpha - 2.0, 0.0));
  return vec2<u32>(min(first, out_size - 1u), min(u32(f32(x) / alpha + 3.0), out_size));
}

fn pool_divisor(fixed: u32, include_pad: bool, z: Window, y: Window, x: Window) -> i32 {
  if (fixed != 0u) {
    return bitcast<i32>(fixed);
  }
  let cells = (z.last - z.first) * (y.last - y.first) * (x.last - x.first);
  return i32(select(cells, z.padded * y.padded * x.padded, include_pad));
}
