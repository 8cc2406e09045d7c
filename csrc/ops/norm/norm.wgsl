// Normalizes contiguous rows to mean 0 and variance 1 (layer and group normalization). `lanes` invocations share a row
// and keep `items` elements each in registers; what a longer row has beyond that is read again.

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<u32>;
@group(0) @binding(1) var<storage, read_write> b1: array<u32>;
@group(0) @binding(2) var<storage, read_write> b2: array<u32>;
@group(0) @binding(3) var<storage, read> b3: array<u32>;
alias y_t = f32;
alias x_t = f32;
fn store_y(i: u32, v: f32) { b0[i] = bitcast<u32>(v); }
fn store_mean(i: u32, v: f32) { b1[i] = bitcast<u32>(v); }
fn store_rstd(i: u32, v: f32) { b2[i] = bitcast<u32>(v); }
fn load_x(i: u32) -> x_t { return bitcast<f32>(b3[i]); }
// @end

struct Params {
  rows: u32,
  length: u32,
  lanes_log2: u32,
  groups: u32,   // consecutive rows that have weights of their own
  channels: u32, // weights per group
  inner: u32,    // consecutive elements of one weight
  eps: f32,
  y_at: u32,
  mean_at: u32,
  rstd_at: u32,
  x_at: u32,
  w_at: u32,
  b_at: u32,
}
@group(0) @binding(31) var<uniform> p: Params;

// @hook items
const items = 4u;
// @end

// @hook affine
fn affine(channel: u32, v: f32) -> f32 { return v; }
// @end

// @hook put
// An invocation writes `unit` neighbouring elements at once: a whole word of a 16-bit type.
const unit = 1u;
fn put(i: u32, a: f32, b: f32) { store_y(p.y_at + i, a); }
// @end

var<workgroup> shared_values: array<f32, 256>;

fn row_sum(v: f32, lid: u32, lane: u32, lanes: u32) -> f32 {
  var total = v;
  workgroupBarrier();
  shared_values[lid] = total;
  for (var step = lanes >> 1u; step > 0u; step >>= 1u) {
    workgroupBarrier();
    if (lane < step) {
      total += shared_values[lid + step];
      shared_values[lid] = total;
    }
  }
  workgroupBarrier();
  return shared_values[lid - lane];
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let lanes = 1u << p.lanes_log2;
  let lane = lid & (lanes - 1u);
  let row = (wid.y * workgroups.x + wid.x) * (256u >> p.lanes_log2) + (lid >> p.lanes_log2);
  let length = select(0u, p.length, row < p.rows);
  let base = row * p.length;
  let first_channel = row % p.groups * p.channels;
  let rest_begin = items / unit * lanes + lane; // in units

  var values: array<f32, items>;
  var sum = 0.0;
  for (var k = 0u; k < items; k++) {
    let e = (k / unit * lanes + lane) * unit + k % unit;
    if (e < length) {
      values[k] = load_x(p.x_at + base + e);
      sum += values[k];
    }
  }
  for (var u = rest_begin; u * unit < length; u += lanes) {
    for (var k = 0u; k < unit; k++) {
      sum += load_x(p.x_at + base + u * unit + k);
    }
  }
  let mean = row_sum(sum, lid, lane, lanes) / f32(p.length);

  // Distances from the mean, and not a difference of squares: that would cancel.
  var squares = 0.0;
  for (var k = 0u; k < items; k++) {
    if ((k / unit * lanes + lane) * unit + k % unit < length) {
      values[k] -= mean;
      squares += values[k] * values[k];
    }
  }
  for (var u = rest_begin; u * unit < length; u += lanes) {
    for (var k = 0u; k < unit; k++) {
      let distance = load_x(p.x_at + base + u * unit + k) - mean;
      squares += distance * distance;
    }
  }
  let rstd = rsqrt_f(row_sum(squares, lid, lane, lanes) / f32(p.length) + p.eps);

  if (lane == 0u && row < p.rows) {
    store_mean(p.mean_at + row, mean);
    store_rstd(p.rstd_at + row, rstd);
  }
  for (var k = 0u; k < items; k += unit) {
    let e = (k / unit * lanes + lane) * unit;
    if (e < length) {
      let a = affine(first_channel + e / p.inner, values[k] * rstd);
      let last = k + unit - 1u;
      put(base + e, a, affine(first_channel + (e + unit - 1u) / p.inner, values[last] * rstd));
    }
  }
  for (var u = rest_begin; u * unit < length; u += lanes) {
    let e = u * unit;
    let last = e + unit - 1u;
    let a = affine(first_channel + e / p.inner, (load_x(p.x_at + base + e) - mean) * rstd);
    put(base + e, a,
        affine(first_channel + last / p.inner, (load_x(p.x_at + base + last) - mean) * rstd));
  }
}
