// Maximum of each window, and where it was found. One invocation per output cell.
//
// @operand out: out float integer
// @operand index: out {i64}
// @operand in: in like out
// @operand samples: in float optional // random numbers that place fractional windows
// @const   windows: {fixed, adaptive, fractional}
// @require has_samples == fractional

import package::pool::windows::{Params, in_layout, out_layout, window};

// Two samples are for columns and rows, three for depth, rows and columns.
@if(fractional)
fn sample(cell: Cell, d: u32) -> f32 {
  let k = select(2u - max(d, 1u), d, p.dims == 3u);
  let samples = layout_of(p.samples_at, p.samples_batch, p.samples_step);
  return load_samples(plane_of(samples, cell) + k * p.samples_step.z);
}

fn lowest() -> in_t {
  @if(in_is_float) return -inf_f();
  @elif(in_is_i64) return vec2<u32>(0u, 0x80000000u);
  @else return -2147483647 - 1;
}

fn replaces(value: in_t, best: in_t) -> bool {
  @if(in_is_float) return value > best || is_nan_f(value);
  @elif(in_is_i64) return gt_l(value, best);
  @else return value > best;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.count) {
    return;
  }
  let cell = cell_of(i, p.channels, p.out_size.xyz, p.channels_last != 0u);
  let depth = window(cell, 0u, p.dilation[0u]);
  let row = window(cell, 1u, p.dilation[1u]);
  let column = window(cell, 2u, p.dilation[2u]);
  let plane = plane_of(in_layout(), cell);
  var best = lowest();
  var found = (depth.first * p.in_size.y + row.first) * p.in_size.z + column.first;
  for (var z = depth.first; z < depth.last; z += depth.step) {
    for (var y = row.first; y < row.last; y += row.step) {
      for (var x = column.first; x < column.last; x += column.step) {
        let value = load_in(plane + dot(vec3<u32>(z, y, x), p.in_step.xyz));
        if (replaces(value, best)) {
          best = value;
          found = (z * p.in_size.y + y) * p.in_size.z + x;
        }
      }
    }
  }
  store_out(element_of(out_layout(), cell), best);
  let index = layout_of(p.index_at, p.index_batch, p.index_step);
  store_index(element_of(index, cell), vec2<u32>(found, 0u));
}
