// The pixels of a bin, for roi_pool and ps_roi_pool: from .x to below .y along each side.

import package::vision::roi::{Params, Bin, roi};

// Rounds halves away from zero, as C's round(). What lies far outside stays so.
fn pixel_of(at: f32) -> i32 {
  let whole = trunc(at);
  let rounded = whole + select(0.0, sign(at), abs(at - whole) >= 0.5);
  return i32(clamp(rounded, -268435456.0, 268435456.0));
}

fn pixels_of(low: f32, high: f32, number: u32, bins: u32, limit: u32) -> vec2<i32> {
  let start = pixel_of(low * p.scale);
  var length = pixel_of(high * p.scale) - start;
  @if(!sensitive) {
    length += 1;
  }
  let bin = div_f(f32(max(length, 1)), f32(bins));
  let begin = i32(floor(f32(number) * bin)) + start;
  let end = i32(ceil(f32(number + 1u) * bin)) + start;
  return clamp(vec2<i32>(begin, end), vec2<i32>(0), vec2<i32>(i32(limit)));
}

// `cut`: the last row and column are left out, as ps_roi_pool does in the forward direction.
fn rows_of(bin: Bin, cut: u32) -> vec2<i32> {
  return pixels_of(roi(bin.region, 2u), roi(bin.region, 4u), bin.row, p.pooled_height, p.height - cut);
}

fn columns_of(bin: Bin, cut: u32) -> vec2<i32> {
  return pixels_of(roi(bin.region, 1u), roi(bin.region, 3u), bin.column, p.pooled_width, p.width - cut);
}
