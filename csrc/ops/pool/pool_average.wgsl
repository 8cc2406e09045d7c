// Mean of each window. One invocation per output cell.
//
// @operand out: out float i64
// @operand in: in like out
// @const   windows: {fixed, adaptive}

import package::pool::windows::{Params, in_layout, out_layout, window};

fn plus(a: in_t, b: in_t) -> in_t {
  @if(in_is_i64) return add_l(a, b);
  @else return a + b;
}

fn mean(sum: in_t, divisor: i32) -> in_t {
  @if(in_is_i64) return div_l(sum, l_from_i(divisor));
  @else return sum / f32(divisor);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.count) {
    return;
  }
  let cell = cell_of(i, p.channels, p.out_size.xyz, p.channels_last != 0u);
  let depth = window(cell, 0u, 1u);
  let row = window(cell, 1u, 1u);
  let column = window(cell, 2u, 1u);
  let plane = plane_of(in_layout(), cell);
  // Adds up rows, then planes, then the window, so that large windows lose less to rounding.
  var sum = in_t();
  for (var z = depth.first; z < depth.last; z++) {
    var plane_sum = in_t();
    for (var y = row.first; y < row.last; y++) {
      var row_sum = in_t();
      for (var x = column.first; x < column.last; x++) {
        row_sum = plus(row_sum, load_in(plane + dot(vec3<u32>(z, y, x), p.in_step.xyz)));
      }
      plane_sum = plus(plane_sum, row_sum);
    }
    sum = plus(sum, plane_sum);
  }
  var result = in_t();
  if (depth.first < depth.last && row.first < row.last && column.first < column.last) {
    result = mean(sum, pool_divisor(p.divisor, p.count_include_pad != 0u, depth, row, column));
  }
  store_out(element_of(out_layout(), cell), result);
}
