// How many elements of each block of 2048 are nonzero: the first step of nonzero, masked_select and masked_scatter.
//
// @operand counts: out {bits32}
// @operand mask: in any
// @grid groups ceil_div(p.count, 2048)

import package::select::selected::{is_selected};

struct Params {
  count: u32, // elements of the mask
}

var<workgroup> found: array<u32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let block = group.y * groups.x + group.x;
  var own = 0u;
  for (var k = 0u; k < 8u; k++) {
    let i = block * 2048u + k * 256u + local;
    if (i < p.count && is_selected(i)) {
      own++;
    }
  }
  found[local] = own;
  for (var step = 128u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (local < step) {
      found[local] += found[local + step];
    }
  }
  if (local == 0u && block * 2048u < p.count) {
    store_counts(p.counts_at + block, found[0]);
  }
}
