// The input's gradient of batch normalization, per channel, as gradient * s0 + x * s1 + s2, and the gradients of
// weight and bias, from sums over parts of the elements.
//
// @operand scales: out {f32} // s0 of all channels, then s1, then s2
// @operand weight_gradient: out float optional
// @operand bias_gradient: out float optional
// @operand parts: in {f32} // for each part the sums of the gradient, then those of its products with the normalized input
// @operand mean: in float
// @operand invstd: in float
// @operand weight: in float optional
// @grid groups (p.channels + channel_lanes - 1) / channel_lanes

import package::norm::channels::{lanes, all_sums};

struct Params {
  channels: u32,
  per_element: f32, // 1 / n where the statistics depend on the input, else 0
  parts: u32,
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let c = (wid.y * workgroups.x + wid.x) * channel_lanes + lid % channel_lanes;
  var sums = vec2<f32>();
  if (c < p.channels) {
    for (var part = lid / channel_lanes; part < p.parts; part += lanes) {
      let i = p.parts_at + 2u * part * p.channels + c;
      sums += vec2<f32>(load_parts(i), load_parts(i + p.channels));
    }
  }
  sums = all_sums(sums, lid);
  if (c >= p.channels || lid >= channel_lanes) {
    return;
  }
  let invstd = load_invstd(p.invstd_at + c);
  var scale = invstd;
  @if(has_weight) scale *= load_weight(p.weight_at + c);
  let of_x = -scale * invstd * sums.y * p.per_element;
  store_scales(p.scales_at + c, scale);
  store_scales(p.scales_at + p.channels + c, of_x);
  store_scales(p.scales_at + 2u * p.channels + c, -scale * sums.x * p.per_element - of_x * load_mean(p.mean_at + c));
  @if(has_weight_gradient) store_weight_gradient(p.weight_gradient_at + c, sums.y);
  @if(has_bias_gradient) store_bias_gradient(p.bias_gradient_at + c, sums.x);
}
