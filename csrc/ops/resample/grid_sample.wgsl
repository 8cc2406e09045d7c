// Samples the input at the coordinates that the grid holds. One invocation per output element.
//
// @operand out: out float
// @operand in: in like out
// @operand grid: in like out
// @const   interpolation: {linear, nearest, cubic}

import package::resample::grid_axis::{axis};

// Vectors hold depth, row, column. The `step` vectors hold the channel's stride behind these. Channels of the grid are
// coordinates: column, row, depth.
struct Params {
  count: u32,
  channels: u32,
  padding: u32, // 0 zeros, 1 border, 2 reflection
  align_corners: u32,
  dims: u32,
  in_batch: u32,
  grid_batch: u32,
  out_batch: u32,
  in_size: vec4<u32>,
  out_size: vec4<u32>,
  in_step: vec4<u32>,
  grid_step: vec4<u32>,
  out_step: vec4<u32>,
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.count) {
    return;
  }
  let cell = cell_of(i, p.channels, p.out_size.xyz, false);
  var depth = axis(cell, 0u);
  var row = axis(cell, 1u);
  var column = axis(cell, 2u);
  let plane = plane_of(layout_of(p.in_at, p.in_batch, p.in_step), cell);
  var sum = depth.base + row.base + column.base;
  for (var z = 0u; z < depth.count; z++) {
    for (var y = 0u; y < row.count; y++) {
      for (var x = 0u; x < column.count; x++) {
        let at = vec3<i32>(depth.cells[z], row.cells[y], column.cells[x]);
        if (all(at >= vec3<i32>(0))) {
          sum += depth.weights[z] * row.weights[y] * column.weights[x] *
                 load_in(plane + dot(vec3<u32>(at), p.in_step.xyz));
        }
      }
    }
  }
  store_out(element_of(layout_of(p.out_at, p.out_batch, p.out_step), cell), sum);
}
