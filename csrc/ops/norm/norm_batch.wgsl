// What batch normalization needs per channel, from mean and variance: the reciprocal of the deviation, the result as
// scale * x + shift, and the running statistics. Mean and variance are given, or combined from those of parts of the
// elements.
//
// @operand invstd: out {f32}
// @operand scales: out {f32} // the scales of all channels, then the shifts
// @operand parts: in {f32} optional // for each part the means of all channels, then their variances
// @operand batch_mean: out {f32} optional
// @operand mean: in float optional
// @operand var: in float optional
// @operand weight: in float optional
// @operand bias: in float optional
// @operand running_mean: out float optional
// @operand running_var: out float optional
// @grid groups (p.channels + channel_lanes - 1) / channel_lanes

import package::norm::channels::{lanes, all_moments};
// @require has_parts != has_mean
// @require has_mean == has_var
// @require has_parts == has_batch_mean
// @require has_parts || !(has_running_mean || has_running_var)
// @require has_parts || channel_lanes == 256

struct Params {
  channels: u32,
  eps: f32,
  momentum: f32,
  unbias: f32, // n / (n - 1)
  parts: u32,
  elements: u32, // of a channel
  elements_of_part: u32,
}

fn updated(running: f32, fresh: f32) -> f32 {
  return (1.0 - p.momentum) * running + p.momentum * fresh;
}

@if(has_parts)
fn moments_of_part(part: u32, channel: u32) -> Moments_f {
  let count = f32(min(p.elements_of_part, p.elements - part * p.elements_of_part));
  let i = p.parts_at + 2u * part * p.channels + channel;
  return Moments_f(load_parts(i), load_parts(i + p.channels) * count, count);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let c = (wid.y * workgroups.x + wid.x) * channel_lanes + lid % channel_lanes;
  var mean = 0.0;
  var variance = 0.0;
  @if(has_parts) {
    var moments = Moments_f(0.0, 0.0, 0.0);
    if (c < p.channels) {
      for (var part = lid / channel_lanes; part < p.parts; part += lanes) {
        moments = merge_moments_f(moments, moments_of_part(part, c));
      }
    }
    moments = all_moments(moments, lid);
    mean = moments.mean;
    variance = moments.squares / moments.count;
  }
  if (c >= p.channels || lid >= channel_lanes) {
    return;
  }
  @if(has_mean) {
    mean = load_mean(p.mean_at + c);
    variance = load_var(p.var_at + c);
  }
  let invstd = rsqrt_f(variance + p.eps);
  var scale = invstd;
  @if(has_weight) scale *= load_weight(p.weight_at + c);
  var shift = 0.0;
  @if(has_bias) shift = load_bias(p.bias_at + c);
  shift -= mean * scale;
  store_invstd(p.invstd_at + c, invstd);
  store_scales(p.scales_at + c, scale);
  store_scales(p.scales_at + p.channels + c, shift);
  @if(has_batch_mean) store_batch_mean(p.batch_mean_at + c, mean);
  @if(has_running_mean) {
    let i = p.running_mean_at + c;
    store_running_mean(i, updated(load_running_mean(i), mean));
  }
  @if(has_running_var) {
    let i = p.running_var_at + c;
    store_running_var(i, updated(load_running_var(i), variance * p.unbias));
  }
}
