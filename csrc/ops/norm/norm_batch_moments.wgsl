// Mean and variance, without correction, of a part of each channel's elements.
//
// @operand parts: out {f32} // for each part the means of all channels, then their variances
// @operand x: in float
// @grid groups (p.channels + channel_lanes - 1) / channel_lanes * p.parts

import package::norm::channels::{lanes, all_moments};
import package::norm::channel_walk::{Params, place_of_unit};

// Of four units.
fn with_four(sum: Moments_f, channel: u32, unit: u32) -> Moments_f {
  let a = p.x_at + place_of_unit(channel, unit);
  let b = p.x_at + place_of_unit(channel, unit + lanes);
  let c = p.x_at + place_of_unit(channel, unit + 2u * lanes);
  let d = p.x_at + place_of_unit(channel, unit + 3u * lanes);
  @if(pairs) {
    let first = vec4<f32>(load2_x(a), load2_x(b));
    let second = vec4<f32>(load2_x(c), load2_x(d));
    return push_four_moments_f(push_four_moments_f(sum, first), second);
  }
  @else return push_four_moments_f(sum, vec4<f32>(load_x(a), load_x(b), load_x(c), load_x(d)));
}

fn with_one(sum: Moments_f, channel: u32, unit: u32) -> Moments_f {
  let i = p.x_at + place_of_unit(channel, unit);
  @if(pairs) {
    let pair = load2_x(i);
    return push_moment_f(push_moment_f(sum, pair.x), pair.y);
  }
  @else return push_moment_f(sum, load_x(i));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let group = wid.y * workgroups.x + wid.x;
  let part = group % p.parts;
  let channel = group / p.parts * channel_lanes + lid % channel_lanes;
  var sum = Moments_f(0.0, 0.0, 0.0);
  if (channel < p.channels) {
    let end = min((part + 1u) * p.units_of_part, p.units);
    var unit = part * p.units_of_part + lid / channel_lanes;
    for (; unit + 3u * lanes < end; unit += 4u * lanes) {
      sum = with_four(sum, channel, unit);
    }
    for (; unit < end; unit += lanes) {
      sum = with_one(sum, channel, unit);
    }
  }
  sum = all_moments(sum, lid);
  if (lid < channel_lanes && channel < p.channels) {
    let i = p.parts_at + 2u * part * p.channels + channel;
    store_parts(i, sum.mean);
    store_parts(i + p.channels, sum.squares / sum.count);
  }
}
