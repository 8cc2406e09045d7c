// Gradients of sampling by coordinates. One invocation per point of the grid, over all channels. The
// input's gradient is summed with atomics: which points touch a cell is not known beforehand.
//
// @operand out: in float // the gradient of the result
// @operand in: in like out
// @operand grid: in like out
// @operand grad_grid: out like out
// @operand grad_in: sum {f32} optional
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
  grad_in_batch: u32,
  grad_grid_batch: u32,
  in_size: vec4<u32>,
  out_size: vec4<u32>,
  in_step: vec4<u32>,
  grid_step: vec4<u32>,
  out_step: vec4<u32>,
  grad_in_step: vec4<u32>,
  grad_grid_step: vec4<u32>,
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.count) {
    return;
  }
  var cell = cell_of(i, 1u, p.out_size.xyz, false);
  var depth = axis(cell, 0u);
  var row = axis(cell, 1u);
  var column = axis(cell, 2u);
  let out = layout_of(p.out_at, p.out_batch, p.out_step);
  let in_layout = layout_of(p.in_at, p.in_batch, p.in_step);
  @if(has_grad_in) let grad_in = layout_of(p.grad_in_at, p.grad_in_batch, p.grad_in_step);
  var slope = vec3<f32>(0.0);
  for (var z = 0u; z < depth.count; z++) {
    for (var y = 0u; y < row.count; y++) {
      for (var x = 0u; x < column.count; x++) {
        let at = vec3<i32>(depth.cells[z], row.cells[y], column.cells[x]);
        if (any(at < vec3<i32>(0))) {
          continue;
        }
        let place = dot(vec3<u32>(at), p.in_step.xyz);
        @if(has_grad_in) let grad_place = dot(vec3<u32>(at), p.grad_in_step.xyz);
        let weight = vec3<f32>(depth.weights[z], row.weights[y], column.weights[x]);
        @if(has_grad_in) let share = weight.x * weight.y * weight.z;
        var sum = 0.0;
        for (var c = 0u; c < p.channels; c++) {
          cell.channel = c;
          let gradient = load_out(element_of(out, cell));
          @if(has_grad_in) {
            atomic_add_grad_in(plane_of(grad_in, cell) + grad_place, share * gradient);
          }
          sum += gradient * load_in(plane_of(in_layout, cell) + place);
        }
        slope += sum * vec3<f32>(depth.slopes[z] * weight.y * weight.z,
                                 weight.x * row.slopes[y] * weight.z,
                                 weight.x * weight.y * column.slopes[x]);
      }
    }
  }
  for (var d = 0u; d < p.dims; d++) {
    cell.channel = d;
    let grad_grid = layout_of(p.grad_grid_at, p.grad_grid_batch, p.grad_grid_step);
    store_grad_grid(element_of(grad_grid, cell), slope[2u - d]);
  }
}
