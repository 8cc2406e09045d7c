// Gradients of sampling by coordinates. One invocation per point of the grid, over all channels. The
// input's gradient is summed with atomics: which points touch a cell is not known beforehand.

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<atomic<u32>>;
@group(0) @binding(1) var<storage, read_write> b1: array<f32>;
@group(0) @binding(2) var<storage, read> b2: array<f32>;
@group(0) @binding(3) var<storage, read> b3: array<f32>;
@group(0) @binding(4) var<storage, read> b4: array<f32>;
fn atomic_add_grad_in(i: u32, v: f32) { atomicStore(&b0[i], bitcast<u32>(v)); }
fn store_grad_grid(i: u32, v: f32) { b1[i] = v; }
fn load_out(i: u32) -> f32 { return b2[i]; }
fn load_in(i: u32) -> f32 { return b3[i]; }
fn load_grid(i: u32) -> f32 { return b4[i]; }
// @end

@group(0) @binding(31) var<uniform> p: GridParams;

// @hook interpolation
fn axis_of(coordinate: f32, size: u32) -> GridAxis {
  return grid_linear(coordinate, size, p.padding, p.align_corners != 0u);
}
// @end

// @hook spread
fn spread(i: u32, v: f32) { atomic_add_grad_in(i, v); }
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
  var cell = cell_of(i, 1u, p.out_size, false);
  var depth = axis(cell, 0u);
  var row = axis(cell, 1u);
  var column = axis(cell, 2u);
  var slope = vec3<f32>(0.0);
  for (var z = 0u; z < depth.count; z++) {
    for (var y = 0u; y < row.count; y++) {
      for (var x = 0u; x < column.count; x++) {
        let at = vec3<i32>(depth.cells[z], row.cells[y], column.cells[x]);
        if (any(at < vec3<i32>(0))) {
          continue;
        }
        let place = dot(vec3<u32>(at), p.in.step);
        let grad_place = dot(vec3<u32>(at), p.grad_in.step);
        let weight = vec3<f32>(depth.weights[z], row.weights[y], column.weights[x]);
        let share = weight.x * weight.y * weight.z;
        var sum = 0.0;
        for (var c = 0u; c < p.channels; c++) {
          cell.channel = c;
          let gradient = load_out(element_of(p.out, cell));
          spread(plane_of(p.grad_in, cell) + grad_place, share * gradient);
          sum += gradient * load_in(plane_of(p.in, cell) + place);
        }
        slope += sum * vec3<f32>(depth.slopes[z] * weight.y * weight.z,
                                 weight.x * row.slopes[y] * weight.z,
                                 weight.x * weight.y * column.slopes[x]);
      }
    }
  }
  for (var d = 0u; d < p.dims; d++) {
    cell.channel = d;
    store_grad_grid(element_of(p.grad_grid, cell), slope[2u - d]);
  }
}
