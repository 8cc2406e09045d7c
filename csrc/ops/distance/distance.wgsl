// Distances between the rows of two sets of vectors: of every pair (cdist) or of every pair i < j
// of one set (pdist). One invocation per pair.

struct Params {
  batches: u32,
  rows1: u32,
  rows2: u32,
  width: u32,
  x1: vec4<u32>, // offset, strides of batch, row, element
  x2: vec4<u32>,
  out: vec4<u32>, // offset, strides of batch, row 1, row 2
  power: f32,
}

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
@group(0) @binding(2) var<storage, read> b2: array<f32>;
fn store_out(i: u32, v: f32) { b0[i] = v; }
fn load_x1(i: u32) -> f32 { return b1[i]; }
fn load_x2(i: u32) -> f32 { return b2[i]; }
// @end

@group(0) @binding(31) var<uniform> p: Params;

// @hook norm
fn term(difference: f32) -> f32 { return difference * difference; }
fn combine(a: f32, b: f32) -> f32 { return a + b; }
fn finish(total: f32) -> f32 { return sqrt(total); }
// @end

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.batches * p.rows1 * p.rows2) {
    return;
  }
  let row2 = i % p.rows2;
  let row1 = i / p.rows2 % p.rows1;
  let batch = i / p.rows2 / p.rows1;
  let at1 = p.x1.x + batch * p.x1.y + row1 * p.x1.z;
  let at2 = p.x2.x + batch * p.x2.y + row2 * p.x2.z;
// @hook place
  let place = p.out.x + batch * p.out.y + row1 * p.out.z + row2 * p.out.w;
// @end
  var total = 0.0;
  for (var k = 0u; k < p.width; k++) {
    total = combine(total, term(load_x1(at1 + k * p.x1.w) - load_x2(at2 + k * p.x2.w)));
  }
  store_out(place, finish(total));
}
