// fold: each pixel sums its copies in the columns. One invocation per pixel.

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
alias image_t = f32;
fn store_image(i: u32, v: f32) { b0[i] = v; }
fn load_columns(i: u32) -> f32 { return b1[i]; }
// @end

@group(0) @binding(31) var<uniform> p: FoldParams;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.count) {
    return;
  }
  let cell = cell_of(i, p.channels, p.size, false);
  var column = cell;
  var sum = image_t();
  for (var y = 0u; y < p.kernel.y; y++) {
    for (var x = 0u; x < p.kernel.z; x++) {
      // Wraps around below zero, and is then past the last place, too.
      let offset = cell.at + p.padding - vec3<u32>(0u, y, x) * p.dilation;
      let place = offset / p.stride;
      if (all(place * p.stride == offset) && all(place < p.grid)) {
        column.channel = (cell.channel * p.kernel.y + y) * p.kernel.z + x;
        sum += load_columns(plane_of(p.columns, column) +
                            (place.y * p.grid.z + place.z) * p.columns.step.z);
      }
    }
  }
  store_image(element_of(p.image, cell), sum);
}
