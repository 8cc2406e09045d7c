// LU factors of a panel of at most `block` columns with partial pivoting, in place. One workgroup
// to a matrix; it interchanges the panel's rows only.

struct Params {
  batches: u32,
  rows: u32,
  columns: u32,
  first: u32, // the row and column that the panel starts at in the whole matrix
  a: vec4<u32>, // offset, strides of batch, row and column
  pivots_offset: u32,
  pivots_batch: u32,
  info_offset: u32,
  pivot: u32, // whether to interchange rows
}

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<u32>;
@group(0) @binding(1) var<storage, read_write> b1: array<u32>;
@group(0) @binding(2) var<storage, read_write> b2: array<u32>;
fn load_a(i: u32) -> f32 { return bitcast<f32>(b0[i]); }
fn store_a(i: u32, v: f32) { b0[i] = bitcast<u32>(v); }
fn store_pivots(i: u32, v: i32) { b1[i] = bitcast<u32>(v); }
fn load_info(i: u32) -> i32 { return bitcast<i32>(b2[i]); }
fn store_info(i: u32, v: i32) { b2[i] = bitcast<u32>(v); }
// @end

@group(0) @binding(31) var<uniform> p: Params;

// @hook number
alias num = f32;
const block = 32u;
fn times(a: num, b: num) -> num { return a * b; }
fn over(a: num, b: num) -> num { return div_f(a, b); }
fn real_part(a: num) -> f32 { return a; }
fn imaginary_part(a: num) -> f32 { return 0.0; }
fn is_zero(a: num) -> bool { return magnitude_bits_f(a) == 0u; }
// @end

const lanes = 256u;

var<workgroup> best_size: array<u32, lanes>;
var<workgroup> best_row: array<u32, lanes>;
var<workgroup> pivot_row: array<num, block>;

// Orders numbers by size, NaN last: what LAPACK compares, as bits.
fn size_of(a: num) -> u32 {
  return bitcast<u32>(abs_f(real_part(a)) + abs_f(imaginary_part(a)));
}

@compute @workgroup_size(lanes)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let batch = wid.y * groups.x + wid.x;
  if (batch >= p.batches) {
    return;
  }
  let a = p.a.x + batch * p.a.y;
  var width = lanes; // invocations that have a row at all, as a power of two
  while (width / 2u >= p.rows && width > 1u) {
    width /= 2u;
  }
  var failed = 0u; // the first column, from 1, without a pivot
  for (var j = 0u; j < p.columns && j < p.rows; j++) {
    var size = 0u;
    var row = j;
    if (p.pivot != 0u) {
      for (var i = j + lane; i < p.rows; i += lanes) {
        let s = size_of(load_a(a + i * p.a.z + j * p.a.w));
        if (s > size) {
          size = s;
          row = i;
        }
      }
    }
    best_size[lane] = size;
    best_row[lane] = row;
    for (var half = width / 2u; half > 0u; half /= 2u) {
      workgroupBarrier();
      if (lane < half) {
        let other_size = best_size[lane + half];
        let other_row = best_row[lane + half];
        // Of equals the first row, as LAPACK does.
        if (other_size > size || (other_size == size && other_row < row)) {
          size = other_size;
          row = other_row;
          best_size[lane] = size;
          best_row[lane] = row;
        }
      }
    }
    workgroupBarrier();
    let pivot = best_row[0];
    if (lane < p.columns) {
      let here = a + j * p.a.z + lane * p.a.w;
      let there = a + pivot * p.a.z + lane * p.a.w;
      let value = load_a(there);
      store_a(there, load_a(here));
      store_a(here, value);
      pivot_row[lane] = value;
    }
    if (lane == 0u) {
      store_pivots(p.pivots_offset + batch * p.pivots_batch + j, i32(p.first + pivot + 1u));
    }
    workgroupBarrier();
    storageBarrier();
    let divisor = pivot_row[j];
    if (is_zero(divisor)) {
      failed = select(failed, j + 1u, failed == 0u);
    } else {
      for (var i = j + 1u + lane; i < p.rows; i += lanes) {
        let factor = over(load_a(a + i * p.a.z + j * p.a.w), divisor);
        store_a(a + i * p.a.z + j * p.a.w, factor);
        for (var k = j + 1u; k < p.columns; k++) {
          let at = a + i * p.a.z + k * p.a.w;
          store_a(at, load_a(at) - times(factor, pivot_row[k]));
        }
      }
    }
    workgroupBarrier();
    storageBarrier();
  }
  let info = p.info_offset + batch;
  if (lane == 0u && failed != 0u && load_info(info) == 0i) {
    store_info(info, i32(p.first + failed));
  }
}
