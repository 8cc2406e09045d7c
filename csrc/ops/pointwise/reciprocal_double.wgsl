// 1 / x of float64 numbers, by integer arithmetic: WGSL has no 64-bit floats.

struct Params {
  count: u32,
  x_offset: u32,
  y_offset: u32,
}
@group(0) @binding(31) var<uniform> p: Params;

// @operands
@group(0) @binding(0) var<storage, read> b0: array<u32>;
@group(0) @binding(1) var<storage, read_write> b1: array<u32>;
fn load_x(i: u32) -> vec2<u32> { return vec2<u32>(b0[2u * i], b0[2u * i + 1u]); }
fn store_y(i: u32, v: vec2<u32>) { b1[2u * i] = v.x; b1[2u * i + 1u] = v.y; }
// @end

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let i = (group.y * groups.x + group.x) * 256u + local;
  if (i < p.count) {
    store_y(p.y_offset + i, reciprocal_d(load_x(p.x_offset + i)));
  }
}
