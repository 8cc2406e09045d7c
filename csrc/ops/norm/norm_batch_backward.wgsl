// The input's gradient of batch normalization, per channel, as gradient * s0 + x * s1 + s2.
//
// @operand scales: out {f32} // s0 of all channels, then s1, then s2
// @operand sum: in {f32}     // sum of the gradient
// @operand product: in {f32} // sum of the gradient times the normalized input
// @operand mean: in float
// @operand invstd: in float
// @operand weight: in float optional
// @grid invocations p.channels

struct Params {
  channels: u32,
  per_element: f32, // 1 / n where the statistics depend on the input, else 0
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let c = (wid.y * workgroups.x + wid.x) * 256u + lid;
  if (c >= p.channels) {
    return;
  }
  let invstd = load_invstd(p.invstd_at + c);
  var scale = invstd;
  @if(has_weight) scale *= load_weight(p.weight_at + c);
  let of_x = -scale * invstd * load_product(p.product_at + c) * p.per_element;
  store_scales(p.scales_at + c, scale);
  store_scales(p.scales_at + p.channels + c, of_x);
  store_scales(p.scales_at + 2u * p.channels + c,
               -scale * load_sum(p.sum_at + c) * p.per_element - of_x * load_mean(p.mean_at + c));
}
