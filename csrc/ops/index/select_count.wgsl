// How many elements of each block of 2048 are nonzero: the first step of nonzero, masked_select and
// masked_scatter.

struct Params {
  count: u32,
  in_offset: u32,
}

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<u32>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
fn store_out(i: u32, v: u32) { b0[i] = v; }
fn load_in(i: u32) -> f32 { return b1[i]; }
// @end

@group(0) @binding(31) var<uniform> p: Params;

// @hook is_selected
fn is_selected(i: u32) -> bool { return load_in(i) != 0.0; }
// @end

var<workgroup> counts: array<u32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let block = group.y * groups.x + group.x;
  var found = 0u;
  for (var k = 0u; k < 8u; k++) {
    let i = block * 2048u + k * 256u + local;
    if (i < p.count && is_selected(p.in_offset + i)) {
      found++;
    }
  }
  counts[local] = found;
  for (var step = 128u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (local < step) {
      counts[local] += counts[local + step];
    }
  }
  if (local == 0u && block * 2048u < p.count) {
    store_out(block, counts[0]);
  }
}
