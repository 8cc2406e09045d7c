// Gradient of max pooling: each input cell sums the gradients of the windows whose maximum it was.
//
// @operand in: out float
// @operand out: in like in
// @operand index: in {i64}
// @const   windows: {fixed, adaptive, fractional}

import package::pool::windows::{Params, in_layout, out_layout, cover};

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.count) {
    return;
  }
  let cell = cell_of(i, p.channels, p.in_size.xyz, p.channels_last != 0u);
  let depth = cover(cell, 0u, p.dilation[0u]);
  let row = cover(cell, 1u, p.dilation[1u]);
  let column = cover(cell, 2u, p.dilation[2u]);
  let own = (cell.at.x * p.in_size.y + cell.at.y) * p.in_size.z + cell.at.z;
  let out_plane = plane_of(out_layout(), cell);
  let index_plane = plane_of(layout_of(p.index_at, p.index_batch, p.index_step), cell);
  var sum = 0.0;
  for (var z = depth.x; z < depth.y; z++) {
    for (var y = row.x; y < row.y; y++) {
      for (var x = column.x; x < column.y; x++) {
        let at = vec3<u32>(z, y, x);
        if (load_index(index_plane + dot(at, p.index_step.xyz)).x == own) {
          sum += load_out(out_plane + dot(at, p.out_step.xyz));
        }
      }
    }
  }
  store_in(element_of(in_layout(), cell), sum);
}
