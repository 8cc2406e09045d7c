// Resampling: each output cell is a weighted sum of input cells around it.
//
// @operand out: out float u8
// @operand in: in like out
// @const   method: {nearest, nearest_exact, linear, cubic, linear_aa, cubic_aa}

import package::resample::taps::{Params, in_layout, out_layout, taps_of, weight_of};

fn cell_under(taps: Taps, k: i32, d: u32) -> u32 {
  return u32(clamp(taps.first + k, 0, i32(p.in_size[d]) - 1));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.count) {
    return;
  }
  let cell = cell_of(i, p.channels, p.out_size.xyz, p.channels_last != 0u);
  let depth = taps_of(cell.at.x, 0u);
  let row = taps_of(cell.at.y, 1u);
  let column = taps_of(cell.at.z, 2u);
  let plane = plane_of(in_layout(), cell);
  var sum = 0.0;
  for (var z = 0; z < depth.count; z++) {
    let plane_at = plane + cell_under(depth, z, 0u) * p.in_step.x;
    var plane_sum = 0.0;
    for (var y = 0; y < row.count; y++) {
      let row_at = plane_at + cell_under(row, y, 1u) * p.in_step.y;
      var row_sum = 0.0;
      for (var x = 0; x < column.count; x++) {
        row_sum += weight_of(column, x) *
                   f32(load_in(row_at + cell_under(column, x, 2u) * p.in_step.z));
      }
      plane_sum += weight_of(row, y) * row_sum;
    }
    sum += weight_of(depth, z) * plane_sum;
  }
  store_out(element_of(out_layout(), cell), out_t(sum));
}
