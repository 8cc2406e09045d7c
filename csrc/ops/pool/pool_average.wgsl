// Mean of each window. One invocation per output cell.

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
alias in_t = f32;
fn store_out(i: u32, v: f32) { b0[i] = v; }
fn load_in(i: u32) -> f32 { return b1[i]; }
// @end

@group(0) @binding(31) var<uniform> p: PoolParams;

// @hook window
fn window(cell: Cell, d: u32) -> Window {
  return fixed_window(cell.at[d], p.in_size[d], p.kernel[d], p.stride[d], p.padding[d], 1u);
}
// @end

// @hook mean
fn plus(a: in_t, b: in_t) -> in_t { return a + b; }
fn mean(sum: in_t, divisor: i32) -> in_t { return sum / f32(divisor); }
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
  // Sums of rows, of planes and of the whole: large windows lose less.
  var sum = in_t();
  for (var z = depth.first; z < depth.last; z++) {
    var plane_sum = in_t();
    for (var y = row.first; y < row.last; y++) {
      var row_sum = in_t();
      for (var x = column.first; x < column.last; x++) {
        row_sum = plus(row_sum, load_in(plane + dot(vec3<u32>(z, y, x), p.in.step)));
      }
      plane_sum = plus(plane_sum, row_sum);
    }
    sum = plus(sum, plane_sum);
  }
  var result = in_t();
  if (depth.first < depth.last && row.first < row.last && column.first < column.last) {
    result = mean(sum, pool_divisor(p.divisor, p.count_include_pad != 0u, depth, row, column));
  }
  store_out(element_of(p.out, cell), result);
}
