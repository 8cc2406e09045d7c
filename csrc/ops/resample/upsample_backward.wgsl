// Gradient of resampling: each input cell sums the gradients of the output cells that it is a tap of,
// in a fixed order and without atomics.
//
// @operand in: out float
// @operand out: in like in
// @const   method: {nearest, nearest_exact, linear, cubic, linear_aa, cubic_aa}

import package::resample::taps::{Params, in_layout, out_layout, taps_of, weight_of};

// The weight of input cell i in output cell o.
fn share(i: u32, o: u32, d: u32) -> f32 {
  let taps = taps_of(o, d);
  let last = i32(p.in_size[d]) - 1;
  // Inside, one tap means cell i. At the ends, the taps beyond the input also mean the outermost cell.
  var low = i32(i) - taps.first;
  var high = low;
  if (i == 0u) {
    low = 0;
  }
  if (i32(i) == last) {
    high = taps.count - 1;
  }
  var sum = 0.0;
  for (var k = max(low, 0); k <= min(high, taps.count - 1); k++) {
    sum += weight_of(taps, k);
  }
  return sum;
}

fn cover(i: u32, d: u32) -> vec2<u32> {
  let shift = select(0.5, 0.0, p.align_corners != 0u);
  return upsample_cover(i, p.in_size[d], p.out_size[d], p.scale[d], shift, p.radius);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.count) {
    return;
  }
  let cell = cell_of(i, p.channels, p.in_size.xyz, p.channels_last != 0u);
  let depth = cover(cell.at.x, 0u);
  let row = cover(cell.at.y, 1u);
  let column = cover(cell.at.z, 2u);
  let plane = plane_of(out_layout(), cell);
  var sum = 0.0;
  for (var z = depth.x; z < depth.y; z++) {
    let depth_share = share(cell.at.x, z, 0u);
    for (var y = row.x; y < row.y; y++) {
      let row_share = depth_share * share(cell.at.y, y, 1u);
      if (row_share == 0.0) {
        continue;
      }
      var row_sum = 0.0;
      for (var x = column.x; x < column.y; x++) {
        let column_share = share(cell.at.z, x, 2u);
        if (column_share != 0.0) {
          row_sum += column_share * load_out(plane + dot(vec3<u32>(z, y, x), p.out_step.xyz));
        }
      }
      sum += row_share * row_sum;
    }
  }
  store_in(element_of(in_layout(), cell), sum);
}
