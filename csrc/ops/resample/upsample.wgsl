// Resampling: each output cell is a weighted sum of input cells around it.

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
alias out_t = f32;
fn store_out(i: u32, v: f32) { b0[i] = v; }
fn load_in(i: u32) -> f32 { return b1[i]; }
// @end

@group(0) @binding(31) var<uniform> p: UpsampleParams;

// @hook filter
fn taps_of(o: u32, d: u32) -> Taps {
  return linear_taps(o, p.in_size[d], p.scale[d], p.align_corners != 0u);
}
fn weight_of(taps: Taps, k: i32) -> f32 { return linear_weight(taps, k); }
// @end

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
  let cell = cell_of(i, p.channels, p.out_size, p.channels_last != 0u);
  let depth = taps_of(cell.at.x, 0u);
  let row = taps_of(cell.at.y, 1u);
  let column = taps_of(cell.at.z, 2u);
  let plane = plane_of(p.in, cell);
  var sum = 0.0;
  for (var z = 0; z < depth.count; z++) {
    let plane_at = plane + cell_under(depth, z, 0u) * p.in.step.x;
    var plane_sum = 0.0;
    for (var y = 0; y < row.count; y++) {
      let row_at = plane_at + cell_under(row, y, 1u) * p.in.step.y;
      var row_sum = 0.0;
      for (var x = 0; x < column.count; x++) {
        row_sum += weight_of(column, x) *
                   f32(load_in(row_at + cell_under(column, x, 2u) * p.in.step.z));
      }
      plane_sum += weight_of(row, y) * row_sum;
    }
    sum += weight_of(depth, z) * plane_sum;
  }
  store_out(element_of(p.out, cell), out_t(sum));
}
