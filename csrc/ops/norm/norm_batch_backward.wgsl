// The input's gradient of batch normalization, per channel, as gradient * s0 + x * s1 + s2.

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<u32>;
@group(0) @binding(1) var<storage, read> b1: array<u32>;
@group(0) @binding(2) var<storage, read> b2: array<u32>;
@group(0) @binding(3) var<storage, read> b3: array<u32>;
@group(0) @binding(4) var<storage, read> b4: array<u32>;
fn store_scales(i: u32, v: f32) { b0[i] = bitcast<u32>(v); }
fn load_sum(i: u32) -> f32 { return bitcast<f32>(b1[i]); }
fn load_product(i: u32) -> f32 { return bitcast<f32>(b2[i]); }
fn load_mean(i: u32) -> f32 { return bitcast<f32>(b3[i]); }
fn load_invstd(i: u32) -> f32 { return bitcast<f32>(b4[i]); }
// @end

struct Params {
  channels: u32,
  scales_at: u32,
  sum_at: u32,     // sum of the gradient
  product_at: u32, // sum of the gradient times the normalized input
  mean_at: u32,
  invstd_at: u32,
  weight_at: u32,
  per_element: f32, // 1 / n where the statistics depend on the input, else 0
}
@group(0) @binding(31) var<uniform> p: Params;

// @hook weight
fn weight(c: u32) -> f32 { return 1.0; }
// @end

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let c = (wid.y * workgroups.x + wid.x) * 256u + lid;
  if (c >= p.channels) {
    return;
  }
  let invstd = load_invstd(p.invstd_at + c);
  let scale = invstd * weight(c);
  let of_x = -scale * invstd * load_product(p.product_at + c) * p.per_element;
  store_scales(p.scales_at + c, scale);
  store_scales(p.scales_at + p.channels + c, of_x);
  store_scales(p.scales_at + 2u * p.channels + c,
               -scale * load_sum(p.sum_at + c) * p.per_element - of_x * load_mean(p.mean_at + c));
}
