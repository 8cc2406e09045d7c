// The Cholesky factor of a Hermitian matrix of at most `block` rows, in place of its lower
// triangle. One workgroup to a matrix.

struct Params {
  batches: u32,
  rows: u32,
  info_offset: u32,
  first: u32, // the row that this block starts at in the whole matrix
  a: vec4<u32>, // offset, strides of batch, row and column
}

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<u32>;
@group(0) @binding(1) var<storage, read_write> b1: array<u32>;
fn load_a(i: u32) -> f32 { return bitcast<f32>(b0[i]); }
fn store_a(i: u32, v: f32) { b0[i] = bitcast<u32>(v); }
fn load_info(i: u32) -> i32 { return bitcast<i32>(b1[i]); }
fn store_info(i: u32, v: i32) { b1[i] = bitcast<u32>(v); }
// @end

@group(0) @binding(31) var<uniform> p: Params;

// @hook number
alias num = f32;
const block = 32u;
fn times(a: num, b: num) -> num { return a * b; }
fn over(a: num, b: num) -> num { return div_f(a, b); }
fn conjugate(a: num) -> num { return a; }
fn real_part(a: num) -> f32 { return a; }
fn from_real(a: f32) -> num { return a; }
// @end

var<workgroup> tile: array<num, block * block>; // column after column

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let batch = wid.y * groups.x + wid.x;
  if (batch >= p.batches) {
    return;
  }
  let a = p.a.x + batch * p.a.y;
  for (var e = lane; e < block * block; e += 256u) {
    let i = e % block;
    let j = e / block;
    if (j <= i && i < p.rows) {
      tile[e] = load_a(a + i * p.a.z + j * p.a.w);
    }
  }
  var failed = 0u; // the first row, from 1, whose leading minor is not positive
  for (var j = 0u; j < p.rows; j++) {
    workgroupBarrier();
    let square = real_part(tile[j * block + j]);
    if (failed == 0u && (is_nan_f(square) || square <= 0.0)) {
      failed = j + 1u;
    }
    let root = from_real(sqrt_f(square));
    workgroupBarrier();
    if (lane == j) {
      tile[j * block + j] = root;
    } else if (lane > j && lane < p.rows) {
      tile[j * block + lane] = over(tile[j * block + lane], root);
    }
    workgroupBarrier();
    for (var e = lane; e < block * block; e += 256u) {
      let i = e % block;
      let k = e / block;
      if (k > j && k <= i && i < p.rows) {
        tile[e] -= times(tile[j * block + i], conjugate(tile[j * block + k]));
      }
    }
  }
  workgroupBarrier();
  for (var e = lane; e < block * block; e += 256u) {
    let i = e % block;
    let j = e / block;
    if (j <= i && i < p.rows) {
      store_a(a + i * p.a.z + j * p.a.w, tile[e]);
    }
  }
  let info = p.info_offset + batch;
  if (lane == 0u && failed != 0u && load_info(info) == 0i) {
    store_info(info, i32(p.first + failed));
  }
}
