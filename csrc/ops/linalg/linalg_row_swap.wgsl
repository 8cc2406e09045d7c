// Applies LAPACK's row interchanges, one after the other or in reverse order. An invocation has a
// column.

struct Params {
  batches: u32,
  columns: u32,
  count: u32, // interchanges
  reverse: u32,
  b: vec4<u32>, // offset, strides of batch, row and column
  pivots_offset: u32,
  pivots_batch: u32,
  first: u32, // the row that the first pivot belongs to
  unused: u32,
}

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<u32>;
@group(0) @binding(1) var<storage, read> b1: array<u32>;
fn load_b(i: u32) -> f32 { return bitcast<f32>(b0[i]); }
fn store_b(i: u32, v: f32) { b0[i] = bitcast<u32>(v); }
fn load_pivots(i: u32) -> i32 { return bitcast<i32>(b1[i]); }
// @end

@group(0) @binding(31) var<uniform> p: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let id = (wid.y * groups.x + wid.x) * 256u + lane;
  let batch = id / p.columns;
  if (batch >= p.batches) {
    return;
  }
  let b = p.b.x + batch * p.b.y + id % p.columns * p.b.w;
  for (var step = 0u; step < p.count; step++) {
    let i = select(step, p.count - 1u - step, p.reverse != 0u);
    let pivot = u32(load_pivots(p.pivots_offset + batch * p.pivots_batch + i)) - 1u;
    let here = b + (p.first + i) * p.b.z;
    let there = b + pivot * p.b.z;
    let value = load_b(there);
    store_b(there, load_b(here));
    store_b(here, value);
  }
}
