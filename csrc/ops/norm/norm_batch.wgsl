// What batch normalization needs per channel, from mean and variance: the reciprocal of the deviation, the result as
// scale * x + shift, and the running statistics.

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<u32>;
@group(0) @binding(1) var<storage, read_write> b1: array<u32>;
@group(0) @binding(2) var<storage, read> b2: array<u32>;
@group(0) @binding(3) var<storage, read> b3: array<u32>;
fn store_invstd(i: u32, v: f32) { b0[i] = bitcast<u32>(v); }
fn store_scales(i: u32, v: f32) { b1[i] = bitcast<u32>(v); }
fn load_mean(i: u32) -> f32 { return bitcast<f32>(b2[i]); }
fn load_var(i: u32) -> f32 { return bitcast<f32>(b3[i]); }
// @end

struct Params {
  channels: u32,
  invstd_at: u32,
  scales_at: u32,
  mean_at: u32,
  var_at: u32,
  weight_at: u32,
  bias_at: u32,
  running_mean_at: u32,
  running_var_at: u32,
  eps: f32,
  momentum: f32,
  unbias: f32, // n / (n - 1)
}
@group(0) @binding(31) var<uniform> p: Params;

// @hook weight
fn weight(c: u32) -> f32 { return 1.0; }
// @end

// @hook bias
fn bias(c: u32) -> f32 { return 0.0; }
// @end

// @hook running_mean
fn update_running_mean(c: u32, mean: f32) {}
// @end

// @hook running_var
fn update_running_var(c: u32, unbiased: f32) {}
// @end

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
  let scale = invstd * weight(c);
  store_invstd(p.invstd_at + c, invstd);
  store_scales(p.scales_at + c, scale);
  store_scales(p.scales_at + p.channels + c, bias(c) - mean * scale);
  update_running_mean(c, mean);
  update_running_var(c, variance * p.unbias);
}
