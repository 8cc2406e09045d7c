// What batch normalization needs per channel, from mean and variance: the reciprocal of the deviation, the result as
// scale * x + shift, and the running statistics.
//
// @operand invstd: out {f32}
// @operand scales: out {f32} // the scales of all channels, then the shifts
// @operand mean: in float
// @operand var: in float
// @operand weight: in float optional
// @operand bias: in float optional
// @operand running_mean: out float optional
// @operand running_var: out float optional
// @grid invocations p.channels

struct Params {
  channels: u32,
  eps: f32,
  momentum: f32,
  unbias: f32, // n / (n - 1)
}

fn updated(running: f32, fresh: f32) -> f32 {
  return (1.0 - p.momentum) * running + p.momentum * fresh;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let c = (wid.y * workgroups.x + wid.x) * 256u + lid;
  if (c >= p.channels) {
    return;
  }
  let mean = load_mean(p.mean_at + c);
  let variance = load_var(p.var_at + c);
  let invstd = rsqrt_f(variance + p.eps);
  var scale = invstd;
  @if(has_weight) scale *= load_weight(p.weight_at + c);
  var shift = 0.0;
  @if(has_bias) shift = load_bias(p.bias_at + c);
  shift -= mean * scale;
  store_invstd(p.invstd_at + c, invstd);
  store_scales(p.scales_at + c, scale);
  store_scales(p.scales_at + p.channels + c, shift);
  @if(has_running_mean) {
    let i = p.running_mean_at + c;
    store_running_mean(i, updated(load_running_mean(i), mean));
  }
  @if(has_running_var) {
    let i = p.running_var_at + c;
    store_running_var(i, updated(load_running_var(i), variance * p.unbias));
  }
}
