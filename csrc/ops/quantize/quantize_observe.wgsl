// What an observer learns from a tensor's smallest and largest elements: moving averages of both,
// and the scale and zero point that quantize this range.

struct Params {
  count: u32, // channels
  symmetric: u32,
  least: i32, // quantized values
  greatest: i32,
  rate: f32, // of the moving averages
  // Where each operand starts.
  low: u32,
  high: u32,
  observes: u32,
  quantizes: u32,
  running_low: u32,
  running_high: u32,
  scale: u32,
  zero_point: u32,
}
@group(0) @binding(31) var<uniform> p: Params;

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read_write> b1: array<f32>;
@group(0) @binding(2) var<storage, read_write> b2: array<f32>;
@group(0) @binding(3) var<storage, read_write> b3: array<i32>;
@group(0) @binding(4) var<storage, read> b4: array<f32>;
@group(0) @binding(5) var<storage, read> b5: array<f32>;
@group(0) @binding(6) var<storage, read> b6: array<i32>;
@group(0) @binding(7) var<storage, read> b7: array<i32>;
fn load_running_low(i: u32) -> f32 { return b0[i]; }
fn store_running_low(i: u32, v: f32) { b0[i] = v; }
fn load_running_high(i: u32) -> f32 { return b1[i]; }
fn store_running_high(i: u32, v: f32) { b1[i] = v; }
fn store_scale(i: u32, v: f32) { b2[i] = v; }
fn store_zero_point(i: u32, v: i32) { b3[i] = v; }
fn load_low(i: u32) -> f32 { return b4[i]; }
fn load_high(i: u32) -> f32 { return b5[i]; }
fn load_observes(i: u32) -> i32 { return b6[i]; }
fn load_quantizes(i: u32) -> i32 { return b7[i]; }
// @end

// An infinite average is one that has not begun.
fn averaged(running: f32, value: f32) -> f32 {
  let begun = (bitcast<u32>(running) & 0x7fffffffu) != 0x7f800000u;
  return select(value, running + p.rate * (value - running), begun);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let i = (group.y * groups.x + group.x) * 256u + local;
  if (i >= p.count) {
    return;
  }
  var low = load_running_low(p.running_low + i);
  var high = load_running_high(p.running_high + i);
  if (load_observes(p.observes) != 0) {
    low = averaged(low, load_low(p.low + i));
    high = averaged(high, load_high(p.high + i));
    store_running_low(p.running_low + i, low);
    store_running_high(p.running_high + i, high);
  }
  if (load_quantizes(p.quantizes) == 0) {
    return;
  }
  let least = f32(p.least);
  let greatest = f32(p.greatest);
  let around_zero = p.symmetric != 0u && low < 0.0 && high > 0.0;
  if (around_zero) {
    let half = f32((p.greatest - p.least) / 2);
    let widest = max(abs(div_f(low, half + 1.0)), abs(div_f(high, half)));
    low = -widest * (half + 1.0);
    high = widest * half;
  }
  // Zero must be a quantized value.
  low = min(low, 0.0);
  high = max(high, 0.0);
  var scale = div_f(high - low, greatest - least);
  if (!(scale >= 1.1754944e-38)) { // its inverse may not be finite, or it is no number
    scale = 0.1;
  }
  store_scale(p.scale + i, scale);
  // From the end that loses less by rounding.
  let steps_low = div_f(low, scale);
  let steps_high = div_f(high, scale);
  let from_low = abs(least) + abs(steps_low) < abs(greatest) + abs(steps_high);
  var zero_point = select(greatest - steps_high, least - steps_low, from_low);
  if (around_zero) {
    zero_point = f32(p.least + p.greatest) / 2.0;
  }
  store_zero_point(p.zero_point + i, i32(clamp(round(zero_point), least, greatest)));
}
