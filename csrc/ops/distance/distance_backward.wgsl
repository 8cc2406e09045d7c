// Gradient of distances by the vectors of the first set. One invocation per element of a vector,
// over all vectors of the second set.

struct Params {
  batches: u32,
  rows1: u32,
  rows2: u32,
  width: u32,
  x1: vec4<u32>, // offset, strides of batch, row, element
  x2: vec4<u32>,
  distance: vec4<u32>, // offset, strides of batch, row 1, row 2
  gradient: vec4<u32>,
  out: vec4<u32>, // as x1
  power: f32,
}

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
@group(0) @binding(2) var<storage, read> b2: array<f32>;
@group(0) @binding(3) var<storage, read> b3: array<f32>;
@group(0) @binding(4) var<storage, read> b4: array<f32>;
fn store_out(i: u32, v: f32) { b0[i] = v; }
fn load_x1(i: u32) -> f32 { return b1[i]; }
fn load_x2(i: u32) -> f32 { return b2[i]; }
fn load_distance(i: u32) -> f32 { return b3[i]; }
fn load_gradient(i: u32) -> f32 { return b4[i]; }
// @end

@group(0) @binding(31) var<uniform> p: Params;

// @hook norm
fn slope(difference: f32, distance: f32) -> f32 {
  return select(difference / distance, 0.0, distance == 0.0);
}
// @end

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.batches * p.rows1 * p.width) {
    return;
  }
  let element = i % p.width;
  let row1 = i / p.width % p.rows1;
  let batch = i / p.width / p.rows1;
  let value = load_x1(p.x1.x + batch * p.x1.y + row1 * p.x1.z + element * p.x1.w);
  var sum = 0.0;
  for (var row2 = 0u; row2 < p.rows2; row2++) {
// @hook pair
    let pair = vec3<u32>(batch, row1, row2);
// @end
    let other = load_x2(p.x2.x + batch * p.x2.y + row2 * p.x2.z + element * p.x2.w);
    let distance = load_distance(p.distance.x + dot(pair, p.distance.yzw));
    let gradient = load_gradient(p.gradient.x + dot(pair, p.gradient.yzw));
    sum += gradient * slope(value - other, distance);
  }
  store_out(p.out.x + batch * p.out.y + row1 * p.out.z + element * p.out.w, sum);
}
