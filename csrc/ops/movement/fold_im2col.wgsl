// unfold: the columns of an image, one invocation per element of them.

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
alias columns_t = f32;
fn store_columns(i: u32, v: f32) { b0[i] = v; }
fn load_image(i: u32) -> f32 { return b1[i]; }
// @end

@group(0) @binding(31) var<uniform> p: FoldParams;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.count) {
    return;
  }
  let area = p.kernel.y * p.kernel.z;
  let cell = cell_of(i, p.channels * area, p.grid, false);
  let tap = cell.channel % area;
  var pixel = cell;
  pixel.channel = cell.channel / area;
  // Wraps around below zero, and is then past the image, too.
  pixel.at = cell.at * p.stride + vec3<u32>(0u, tap / p.kernel.z, tap % p.kernel.z) * p.dilation -
             p.padding;
  var value = columns_t();
  if (all(pixel.at < p.size)) {
    value = load_image(element_of(p.image, pixel));
  }
  store_columns(plane_of(p.columns, cell) + (cell.at.y * p.grid.z + cell.at.z) * p.columns.step.z,
                value);
}
