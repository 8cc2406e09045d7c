// The loss scale of mixed-precision training: shrinks after an overflow, grows after `interval`
// steps without one.

struct Params {
  scale_offset: u32,
  tracker_offset: u32,
  found_offset: u32,
  interval: i32,
  growth: f32,
  backoff: f32,
}
@group(0) @binding(31) var<uniform> p: Params;

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<u32>;
@group(0) @binding(1) var<storage, read_write> b1: array<u32>;
@group(0) @binding(2) var<storage, read> b2: array<u32>;
fn load_scale(i: u32) -> f32 {
  return bitcast<f32>(b0[i]);
}
fn store_scale(i: u32, v: f32) {
  b0[i] = bitcast<u32>(v);
}
fn load_tracker(i: u32) -> i32 {
  return bitcast<i32>(b1[i]);
}
fn store_tracker(i: u32, v: i32) {
  b1[i] = bitcast<u32>(v);
}
fn load_found(i: u32) -> f32 {
  return bitcast<f32>(b2[i]);
}
// @end

@compute @workgroup_size(1)
fn main() {
  let scale = load_scale(p.scale_offset);
  if (load_found(p.found_offset) != 0.0) {
    store_scale(p.scale_offset, scale * p.backoff);
    store_tracker(p.tracker_offset, 0);
    return;
  }
  let steps = load_tracker(p.tracker_offset) + 1;
  if (steps == p.interval) {
    let grown = scale * p.growth;
    if (is_finite_f(grown)) {
      store_scale(p.scale_offset, grown);
    }
    store_tracker(p.tracker_offset, 0);
  } else {
    store_tracker(p.tracker_offset, steps);
  }
}
