// Gradient of average pooling: each input cell sums its share of the gradients of the windows that contain it.
//
// @operand in: out float
// @operand out: in like in
// @const   windows: {fixed, adaptive}

import package::pool::windows::{Params, in_layout, out_layout, window, cover};

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.count) {
    return;
  }
  let cell = cell_of(i, p.channels, p.in_size.xyz, p.channels_last != 0u);
  let depth = cover(cell, 0u, 1u);
  let row = cover(cell, 1u, 1u);
  let column = cover(cell, 2u, 1u);
  let out_plane = plane_of(out_layout(), cell);
  var out_cell = cell;
  var sum = 0.0;
  for (var z = depth.x; z < depth.y; z++) {
    out_cell.at.x = z;
    let out_depth = window(out_cell, 0u, 1u);
    for (var y = row.x; y < row.y; y++) {
      out_cell.at.y = y;
      let out_row = window(out_cell, 1u, 1u);
      for (var x = column.x; x < column.y; x++) {
        out_cell.at.z = x;
        let out_column = window(out_cell, 2u, 1u);
        let divisor = pool_divisor(p.divisor, p.count_include_pad != 0u, out_depth, out_row,
                                   out_column);
        sum += load_out(out_plane + dot(out_cell.at, p.out_step.xyz)) / f32(divisor);
      }
    }
  }
  store_in(element_of(in_layout(), cell), sum);
}
