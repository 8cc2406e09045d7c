// Gradient of max pooling: each input cell sums the gradients of the windows whose maximum it was.

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
@group(0) @binding(2) var<storage, read> b2: array<vec2<u32>>;
fn store_in(i: u32, v: f32) { b0[i] = v; }
fn load_out(i: u32) -> f32 { return b1[i]; }
fn load_index(i: u32) -> vec2<u32> { return b2[i]; }
// @end

@group(0) @binding(31) var<uniform> p: PoolParams;

// @hook cover
fn cover(cell: Cell, d: u32) -> vec2<u32> {
  return fixed_cover(cell.at[d], p.out_size[d], p.kernel[d], p.stride[d], p.padding[d],
                     p.dilation[d]);
}
// @end

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.count) {
    return;
  }
  let cell = cell_of(i, p.channels, p.in_size, p.channels_last != 0u);
  let depth = cover(cell, 0u);
  let row = cover(cell, 1u);
  let column = cover(cell, 2u);
  let own = (cell.at.x * p.in_size.y + cell.at.y) * p.in_size.z + cell.at.z;
  let out_plane = plane_of(p.out, cell);
  let index_plane = plane_of(p.index, cell);
  var sum = 0.0;
  for (var z = depth.x; z < depth.y; z++) {
    for (var y = row.x; y < row.y; y++) {
      for (var x = column.x; x < column.y; x++) {
        let at = vec3<u32>(z, y, x);
        if (load_index(index_plane + dot(at, p.index.step)).x == own) {
          sum += load_out(out_plane + dot(at, p.out.step));
        }
      }
    }
  }
  store_in(element_of(p.in, cell), sum);
}
