// Softmax, log-softmax and their gradients: each row of `length` elements, `inner` apart, in one dispatch. `lanes`
// invocations share a row and keep `items` elements each in registers; what a longer row has beyond that is read
// again in each step.

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<u32>;
@group(0) @binding(1) var<storage, read> b1: array<u32>;
alias y_t = f32;
alias x_t = f32;
fn store_y(i: u32, v: y_t) { b0[i] = bitcast<u32>(v); }
fn load_x(i: u32) -> x_t { return bitcast<f32>(b1[i]); }
// @end

struct Params {
  rows: u32,
  length: u32,
  inner: u32,       // distance of a row's elements; `inner` rows lie interleaved
  lanes_log2: u32,
  lanes_first: u32, // neighbouring invocations share a row (else take neighbouring rows)
  y_at: u32,
  x_at: u32,
  w_at: u32,
}
@group(0) @binding(31) var<uniform> p: Params;

// @hook items
const items = 4u;
// @end

// @hook math
alias value_t = f32;
const shifts = true; // by the row's maximum
fn peak(v: value_t) -> f32 { return v; }
fn load(i: u32) -> value_t { return load_x(p.x_at + i); }
fn shifted(v: value_t, maximum: f32) -> value_t { return exp_f(v - maximum); }
fn weight(v: value_t) -> f32 { return v; }
fn result(v: value_t, sum: f32) -> f32 { return v / sum; }
// @end

// @hook put
// An invocation writes `unit` neighbouring elements at once: a whole word of a 16-bit type.
const unit = 1u;
fn put(i: u32, a: f32, b: f32) { store_y(p.y_at + i, a); }
// @end

var<workgroup> shared_values: array<f32, 256>;

fn row_max(v: f32, slot: u32, stride: u32, lane: u32, lanes: u32) -> f32 {
  var total = v;
  workgroupBarrier();
  shared_values[slot] = total;
  for (var step = lanes >> 1u; step > 0u; step >>= 1u) {
    workgroupBarrier();
    if (lane < step) {
      total = max_f(total, shared_values[slot + step * stride]);
      shared_values[slot] = total;
    }
  }
  workgroupBarrier();
  return shared_values[slot - lane * stride];
}

fn row_sum(v: f32, slot: u32, stride: u32, lane: u32, lanes: u32) -> f32 {
  var total = v;
  workgroupBarrier();
  shared_values[slot] = total;
  for (var step = lanes >> 1u; step > 0u; step >>= 1u) {
    workgroupBarrier();
    if (lane < step) {
      total += shared_values[slot + step * stride];
      shared_values[slot] = total;
    }
  }
  workgroupBarrier();
  return shared_values[slot - lane * stride];
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let lanes = 1u << p.lanes_log2;
  let per_workgroup = 256u >> p.lanes_log2;
  let lanes_first = p.lanes_first != 0u;
  let lane = select(lid / per_workgroup, lid & (lanes - 1u), lanes_first);
  let place = select(lid & (per_workgroup - 1u), lid >> p.lanes_log2, lanes_first);
  let slot = lane * per_workgroup + place;
  let row = (wid.y * workgroups.x + wid.x) * per_workgroup + place;
  let length = select(0u, p.length, row < p.rows);
  let base = row / p.inner * p.inner * p.length + row % p.inner;
  let rest_begin = items / unit * lanes + lane; // in units

  var values: array<value_t, items>;
  for (var k = 0u; k < items; k++) {
    let e = (k / unit * lanes + lane) * unit + k % unit;
    if (e < length) {
      values[k] = load(base + e * p.inner);
    }
  }

  var maximum = 0.0;
  if (shifts) {
    maximum = -inf_f();
    for (var k = 0u; k < items; k++) {
      if ((k / unit * lanes + lane) * unit + k % unit < length) {
        maximum = max_f(maximum, peak(values[k]));
      }
    }
    for (var u = rest_begin; u * unit < length; u += lanes) {
      for (var k = 0u; k < unit; k++) {
        maximum = max_f(maximum, peak(load(base + (u * unit + k) * p.inner)));
      }
    }
    maximum = row_max(maximum, slot, per_workgroup, lane, lanes);
    // Infinity or NaN anywhere, or -infinity everywhere: the whole row is undefined.
    maximum = select(nan_f(), maximum, is_finite_f(maximum));
  }

  var sum = 0.0;
  for (var k = 0u; k < items; k++) {
    if ((k / unit * lanes + lane) * unit + k % unit < length) {
      values[k] = shifted(values[k], maximum);
      sum += weight(values[k]);
    }
  }
  for (var u = rest_begin; u * unit < length; u += lanes) {
    for (var k = 0u; k < unit; k++) {
      sum += weight(shifted(load(base + (u * unit + k) * p.inner), maximum));
    }
  }
  sum = row_sum(sum, slot, per_workgroup, lane, lanes);

  for (var k = 0u; k < items; k += unit) {
    let e = (k / unit * lanes + lane) * unit;
    if (e < length) {
      put(base + e * p.inner, result(values[k], sum), result(values[k + unit - 1u], sum));
    }
  }
  for (var u = rest_begin; u * unit < length; u += lanes) {
    let e = base + u * unit * p.inner;
    let a = result(shifted(load(e), maximum), sum);
    put(e, a, result(shifted(load(e + (unit - 1u) * p.inner), maximum), sum));
  }
}
