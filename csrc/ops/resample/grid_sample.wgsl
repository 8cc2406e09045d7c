// Samples the input at the coordinates that the grid holds. One invocation per output element.

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
@group(0) @binding(2) var<storage, read> b2: array<f32>;
fn store_out(i: u32, v: f32) { b0[i] = v; }
fn load_in(i: u32) -> f32 { return b1[i]; }
fn load_grid(i: u32) -> f32 { return b2[i]; }
// @end

@group(0) @binding(31) var<uniform> p: GridParams;

// @hook interpolation
fn axis_of(coordinate: f32, size: u32) -> GridAxis {
  return grid_linear(coordinate, size, p.padding, p.align_corners != 0u);
}
// @end

fn axis(cell: Cell, d: u32) -> GridAxis {
  if (d + p.dims < 3u) {
    return grid_single();
  }
  var at = cell;
  at.channel = 2u - d;
  return axis_of(load_grid(element_of(p.grid, at)), p.in_size[d]);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.count) {
    return;
  }
  let cell = cell_of(i, p.channels, p.out_size, false);
  var depth = axis(cell, 0u);
  var row = axis(cell, 1u);
  var column = axis(cell, 2u);
  let plane = plane_of(p.in, cell);
  var sum = depth.base + row.base + column.base;
  for (var z = 0u; z < depth.count; z++) {
    for (var y = 0u; y < row.count; y++) {
      for (var x = 0u; x < column.count; x++) {
        let at = vec3<i32>(depth.cells[z], row.cells[y], column.cells[x]);
        if (all(at >= vec3<i32>(0))) {
          sum += depth.weights[z] * row.weights[y] * column.weights[x] *
                 load_in(plane + dot(vec3<u32>(at), p.in.step));
        }
      }
    }
  }
  store_out(element_of(p.out, cell), sum);
}
