// The gradient of norm.wgsl with respect to its input: with g = gradient * weight and h = (x - mean) * rstd,
// rstd * (g - mean(g) - h * mean(g * h)), all of a row.

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<u32>;
@group(0) @binding(1) var<storage, read> b1: array<u32>;
@group(0) @binding(2) var<storage, read> b2: array<u32>;
@group(0) @binding(3) var<storage, read> b3: array<u32>;
@group(0) @binding(4) var<storage, read> b4: array<u32>;
alias y_t = f32;
fn store_y(i: u32, v: f32) { b0[i] = bitcast<u32>(v); }
fn load_g(i: u32) -> f32 { return bitcast<f32>(b1[i]); }
fn load_x(i: u32) -> f32 { return bitcast<f32>(b2[i]); }
fn load_mean(i: u32) -> f32 { return bitcast<f32>(b3[i]); }
fn load_rstd(i: u32) -> f32 { return bitcast<f32>(b4[i]); }
// @end

struct Params {
  rows: u32,
  length: u32,
  lanes_log2: u32,
  groups: u32,   // consecutive rows that have weights of their own
  channels: u32, // weights per group
  inner: u32,    // consecutive elements of one weight
  y_at: u32,
  g_at: u32,
  x_at: u32,
  mean_at: u32,
  rstd_at: u32,
  w_at: u32,
}
@group(0) @binding(31) var<uniform> p: Params;

// @hook items
const items = 4u;
// @end

// @hook affine
fn scale(channel: u32) -> f32 { return 1.0; }
// @end

// @hook put
// An invocation writes `unit` neighbouring elements at once: a whole word of a 16-bit type.
const unit = 1u;
fn put(i: u32, a: f32, b: f32) { store_y(p.y_at + i, a); }
// @end

var<workgroup> shared_values: array<vec2<f32>, 256>;

// g and h of an element.
fn load(row: u32, e: u32, mean: f32, rstd: f32) -> vec2<f32> {
  let i = row * p.length + e;
  let weight = scale(row % p.groups * p.channels + e / p.inner);
  return vec2<f32>(load_g(p.g_at + i) * weight, (load_x(p.x_at + i) - mean) * rstd);
}

fn gradient(v: vec2<f32>, means: vec2<f32>, rstd: f32) -> f32 {
  return rstd * (v.x - means.x - v.y * means.y);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let lanes = 1u << p.lanes_log2;
  let lane = lid & (lanes - 1u);
  let row = (wid.y * workgroups.x + wid.x) * (256u >> p.lanes_log2) + (lid >> p.lanes_log2);
  let length = select(0u, p.length, row < p.rows);
  let base = row * p.length;
  let rest_begin = items / unit * lanes + lane; // in units
  var mean = 0.0;
  var rstd = 0.0;
  if (row < p.rows) {
    mean = load_mean(p.mean_at + row);
    rstd = load_rstd(p.rstd_at + row);
  }

  var values: array<vec2<f32>, items>;
  var sums = vec2<f32>(0.0);
  for (var k = 0u; k < items; k++) {
    let e = (k / unit * lanes + lane) * unit + k % unit;
    if (e < length) {
      values[k] = load(row, e, mean, rstd);
      sums += vec2<f32>(values[k].x, values[k].x * values[k].y);
    }
  }
  for (var u = rest_begin; u * unit < length; u += lanes) {
    for (var k = 0u; k < unit; k++) {
      let v = load(row, u * unit + k, mean, rstd);
      sums += vec2<f32>(v.x, v.x * v.y);
    }
  }
  shared_values[lid] = sums;
  for (var step = lanes >> 1u; step > 0u; step >>= 1u) {
    workgroupBarrier();
    if (lane < step) {
      sums += shared_values[lid + step];
      shared_values[lid] = sums;
    }
  }
  workgroupBarrier();
  let means = shared_values[lid - lane] / f32(p.length);

  for (var k = 0u; k < items; k += unit) {
    let e = (k / unit * lanes + lane) * unit;
    if (e < length) {
      put(base + e, gradient(values[k], means, rstd), gradient(values[k + unit - 1u], means, rstd));
    }
  }
  for (var u = rest_begin; u * unit < length; u += lanes) {
    let a = load(row, u * unit, mean, rstd);
    let b = load(row, u * unit + unit - 1u, mean, rstd);
    put(base + u * unit, gradient(a, means, rstd), gradient(b, means, rstd));
  }
}
