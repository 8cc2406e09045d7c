// Solves A X = B for a triangular A of at most `block` rows, in place of B. An invocation has a
// column of B; A lies in workgroup memory.

struct Params {
  batches: u32,
  rows: u32,
  columns: u32,
  column_groups: u32, // workgroups to a matrix
  a: vec4<u32>, // offset, strides of batch, row and column
  b: vec4<u32>,
  upper: u32,
  unit: u32,
  conjugate: u32,
  unused: u32,
}

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<u32>;
@group(0) @binding(1) var<storage, read> b1: array<u32>;
fn load_b(i: u32) -> f32 { return bitcast<f32>(b0[i]); }
fn store_b(i: u32, v: f32) { b0[i] = bitcast<u32>(v); }
fn load_a(i: u32) -> f32 { return bitcast<f32>(b1[i]); }
// @end

@group(0) @binding(31) var<uniform> p: Params;

// @hook number
alias num = f32;
const block = 32u;
fn times(a: num, b: num) -> num { return a * b; }
fn over(a: num, b: num) -> num { return div_f(a, b); }
fn conjugate(a: num) -> num { return a; }
// @end

const lanes = 64u;

var<workgroup> triangle: array<num, block * block>;
var<workgroup> solution: array<num, block * lanes>;

@compute @workgroup_size(lanes)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let group = wid.y * groups.x + wid.x;
  let batch = group / p.column_groups;
  if (batch >= p.batches) {
    return;
  }
  let column = group % p.column_groups * lanes + lane;
  let a = p.a.x + batch * p.a.y;
  for (var e = lane; e < p.rows * p.rows; e += lanes) {
    let i = e % p.rows;
    let j = e / p.rows;
    let value = load_a(a + i * p.a.z + j * p.a.w);
    if (p.conjugate != 0u) {
      triangle[i * block + j] = conjugate(value);
    } else {
      triangle[i * block + j] = value;
    }
  }
  workgroupBarrier();
  if (column >= p.columns) {
    return;
  }
  let b = p.b.x + batch * p.b.y + column * p.b.w;
  for (var step = 0u; step < p.rows; step++) {
    let i = select(step, p.rows - 1u - step, p.upper != 0u);
    var value = load_b(b + i * p.b.z);
    for (var k = 0u; k < step; k++) {
      let j = select(k, p.rows - 1u - k, p.upper != 0u);
      value -= times(triangle[i * block + j], solution[j * lanes + lane]);
    }
    if (p.unit == 0u) {
      value = over(value, triangle[i * block + i]);
    }
    solution[i * lanes + lane] = value;
    store_b(b + i * p.b.z, value);
  }
}
