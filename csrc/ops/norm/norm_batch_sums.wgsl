// Sums of the gradient of batch normalization's result, and of its products with the normalized input, of a part of
// each channel's elements. Gradient and input have the same strides.
//
// @operand parts: out {f32} // for each part the sums of all channels, then those of products
// @operand gradient: in float
// @operand x: in float
// @operand mean: in float
// @operand invstd: in float
// @grid groups (p.channels + channel_lanes - 1) / channel_lanes * p.parts

import package::norm::channels::{lanes, all_sums};
import package::norm::channel_walk::{Params, place_of_unit};

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let group = wid.y * workgroups.x + wid.x;
  let part = group % p.parts;
  let channel = group / p.parts * channel_lanes + lid % channel_lanes;
  var sum = vec2<f32>();
  if (channel < p.channels) {
    let mean = load_mean(p.mean_at + channel);
    let invstd = load_invstd(p.invstd_at + channel);
    let end = min((part + 1u) * p.units_of_part, p.units);
    for (var unit = part * p.units_of_part + lid / channel_lanes; unit < end; unit += lanes) {
      let i = place_of_unit(channel, unit);
      @if(pairs) {
        let gradient = load2_gradient(p.gradient_at + i);
        let x = (load2_x(p.x_at + i) - mean) * invstd;
        sum += vec2<f32>(gradient.x + gradient.y, gradient.x * x.x + gradient.y * x.y);
      }
      @else {
        let gradient = load_gradient(p.gradient_at + i);
        sum += vec2<f32>(gradient, gradient * ((load_x(p.x_at + i) - mean) * invstd));
      }
    }
  }
  sum = all_sums(sum, lid);
  if (lid < channel_lanes && channel < p.channels) {
    let i = p.parts_at + 2u * part * p.channels + channel;
    store_parts(i, sum.x);
    store_parts(i + p.channels, sum.y);
  }
}
