// Gradient of average pooling: each input cell sums its share of the windows that hold it.

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
fn store_in(i: u32, v: f32) { b0[i] = v; }
fn load_out(i: u32) -> f32 { return b1[i]; }
// @end

@group(0) @binding(31) var<uniform> p: PoolParams;

// @hook window
fn window(cell: Cell, d: u32) -> Window {
  return fixed_window(cell.at[d], p.in_size[d], p.kernel[d], p.stride[d], p.padding[d], 1u);
}
// @end

// @hook cover
fn cover(cell: Cell, d: u32) -> vec2<u32> {
  return fixed_cover(cell.at[d], p.out_size[d], p.kernel[d], p.stride[d], p.padding[d], 1u);
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
  let out_plane = plane_of(p.out, cell);
  var out_cell = cell;
  var sum = 0.0;
  for (var z = depth.x; z < depth.y; z++) {
    out_cell.at.x = z;
    let out_depth = window(out_cell, 0u);
    for (var y = row.x; y < row.y; y++) {
      out_cell.at.y = y;
      let out_row = window(out_cell, 1u);
      for (var x = column.x; x < column.y; x++) {
        out_cell.at.z = x;
        let out_column = window(out_cell, 2u);
        let divisor = pool_divisor(p.divisor, p.count_include_pad != 0u, out_depth, out_row,
                                   out_column);
        sum += load_out(out_plane + dot(out_cell.at, p.out.step)) / f32(divisor);
      }
    }
  }
  store_in(element_of(p.in, cell), sum);
}
