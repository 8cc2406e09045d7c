// What an observer learns from a tensor's smallest and largest elements: moving averages of both,
// and the scale and zero point that quantize this range.
//
// @operand running_low: out {f32}
// @operand running_high: out {f32}
// @operand scale: out {f32}
// @operand zero_point: out {i32}
// @operand low: in float
// @operand high: in like low
// @operand observes: in {i32}  // whether to learn
// @operand quantizes: in {i32} // whether to set scale and zero point

struct Params {
  count: u32, // channels
  symmetric: u32,
  least: i32, // quantized values
  greatest: i32,
  rate: f32, // of the moving averages
}

// An infinite running value means that nothing was observed yet.
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
  var low = load_running_low(p.running_low_at + i);
  var high = load_running_high(p.running_high_at + i);
  if (load_observes(p.observes_at) != 0) {
    low = averaged(low, load_low(p.low_at + i));
    high = averaged(high, load_high(p.high_at + i));
    store_running_low(p.running_low_at + i, low);
    store_running_high(p.running_high_at + i, high);
  }
  if (load_quantizes(p.quantizes_at) == 0) {
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
  if (!(scale >= 1.1754944e-38)) { // NaN, or so small that its inverse may be infinite
    scale = 0.1;
  }
  store_scale(p.scale_at + i, scale);
  // The zero point is computed from the end of the range that loses less by rounding.
  let steps_low = div_f(low, scale);
  let steps_high = div_f(high, scale);
  let from_low = abs(least) + abs(steps_low) < abs(greatest) + abs(steps_high);
  var zero_point = select(greatest - steps_high, least - steps_low, from_low);
  if (around_zero) {
    zero_point = f32(p.least + p.greatest) / 2.0;
  }
  store_zero_point(p.zero_point_at + i, i32(clamp(round(zero_point), least, greatest)));
}
