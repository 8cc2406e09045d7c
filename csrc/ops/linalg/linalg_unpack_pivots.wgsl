// Turns LAPACK's row interchanges into permutations: applies them to rows of 0, 1, 2, ... An
// invocation has a matrix's.

struct Params {
  batches: u32,
  count: u32, // interchanges
  pivots_offset: u32,
  pivots_batch: u32,
  out_offset: u32,
  out_batch: u32,
  unused0: u32,
  unused1: u32,
}

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<u32>;
@group(0) @binding(1) var<storage, read> b1: array<u32>;
fn load_out(i: u32) -> vec2<u32> { return vec2<u32>(b0[2u * i], b0[2u * i + 1u]); }
fn store_out(i: u32, v: vec2<u32>) { b0[2u * i] = v.x; b0[2u * i + 1u] = v.y; }
fn load_pivots(i: u32) -> i32 { return bitcast<i32>(b1[i]); }
// @end

@group(0) @binding(31) var<uniform> p: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let batch = (wid.y * groups.x + wid.x) * 256u + lane;
  if (batch >= p.batches) {
    return;
  }
  let out = p.out_offset + batch * p.out_batch;
  for (var i = 0u; i < p.count; i++) {
    let pivot = u32(load_pivots(p.pivots_offset + batch * p.pivots_batch + i)) - 1u;
    let value = load_out(out + pivot);
    store_out(out + pivot, load_out(out + i));
    store_out(out + i, value);
  }
}
