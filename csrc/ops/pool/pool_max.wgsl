// Maximum of each window, and where it was found. One invocation per output cell.

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read_write> b1: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read> b2: array<f32>;
alias in_t = f32;
fn store_out(i: u32, v: f32) { b0[i] = v; }
fn store_index(i: u32, v: vec2<u32>) { b1[i] = v; }
fn load_in(i: u32) -> f32 { return b2[i]; }
// @end

@group(0) @binding(31) var<uniform> p: PoolParams;

// @hook window
fn window(cell: Cell, d: u32) -> Window {
  return fixed_window(cell.at[d], p.in_size[d], p.kernel[d], p.stride[d], p.padding[d],
                      p.dilation[d]);
}
// @end

// @hook maximum
fn lowest() -> in_t { return -inf_f(); }
fn replaces(value: in_t, best: in_t) -> bool { return value > best || is_nan_f(value); }
// @end

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.count) {
    return;
  }
  let cell = cell_of(i, p.channels, p.out_size, p.channels_last != 0u);
  let depth = window(cell, 0u);
  let row = window(cell, 1u);
  let column = window(cell, 2u);
  let plane = plane_of(p.in, cell);
  var best = lowest();
  var found = (depth.first * p.in_size.y + row.first) * p.in_size.z + column.first;
  for (var z = depth.first; z < depth.last; z += depth.step) {
    for (var y = row.first; y < row.last; y += row.step) {
      for (var x = column.first; x < column.last; x += column.step) {
        let value = load_in(plane + dot(vec3<u32>(z, y, x), p.in.step));
        if (replaces(value, best)) {
          best = value;
          found = (z * p.in_size.y + y) * p.in_size.z + x;
        }
      }
    }
  }
  store_out(element_of(p.out, cell), best);
  store_index(element_of(p.index, cell), vec2<u32>(found, 0u));
}
