// The triangular factor T of a block of Householder reflectors: their product is I - V T V^H. Takes
// the products V^H V, in whose place it puts T. One workgroup to a block, an invocation to a row.

struct Params {
  batches: u32,
  count: u32, // reflectors
  tau_offset: u32,
  tau_batch: u32,
  t: vec4<u32>, // offset, strides of batch, row and column
}

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<u32>;
@group(0) @binding(1) var<storage, read> b1: array<u32>;
fn load_t(i: u32) -> f32 { return bitcast<f32>(b0[i]); }
fn store_t(i: u32, v: f32) { b0[i] = bitcast<u32>(v); }
fn load_tau(i: u32) -> f32 { return bitcast<f32>(b1[i]); }
// @end

@group(0) @binding(31) var<uniform> p: Params;

// @hook number
alias num = f32;
const block = 32u;
fn times(a: num, b: num) -> num { return a * b; }
// @end

const lanes = 32u;

var<workgroup> factor: array<num, block * block>; // column after column

@compute @workgroup_size(lanes)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) row: u32) {
  let batch = wid.y * groups.x + wid.x;
  if (batch >= p.batches) {
    return;
  }
  let t = p.t.x + batch * p.t.y;
  // A row of T depends on itself and the products alone.
  for (var j = row; j < p.count; j++) {
    let tau = load_tau(p.tau_offset + batch * p.tau_batch + j);
    var value = tau;
    if (j > row) {
      var sum = num();
      for (var k = row; k < j; k++) {
        sum += times(factor[k * block + row], load_t(t + k * p.t.z + j * p.t.w));
      }
      value = -times(tau, sum);
    }
    factor[j * block + row] = value;
  }
  workgroupBarrier();
  storageBarrier(); // every row has read the products
  if (row < p.count) {
    for (var j = 0u; j < p.count; j++) {
      if (j < row) {
        store_t(t + row * p.t.z + j * p.t.w, num());
      } else {
        store_t(t + row * p.t.z + j * p.t.w, factor[j * block + row]);
      }
    }
  }
}
