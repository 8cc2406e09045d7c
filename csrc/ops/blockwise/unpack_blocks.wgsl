// out = unpacked weights. An invocation writes four of them, which may have whole words of their own.
//
// @operand out: words float

import package::blockwise::packed::{prepare, unpacked};

struct Params {
  first: u32, // the first weight that is asked for, a multiple of 4
  count: u32,
  block: u32, // weights that share a scale
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  prepare(local);
  let start = ((group.y * groups.x + group.x) * 256u + local) * 4u;
  if (start >= p.count) {
    return;
  }
  let v = unpacked(p.first + start);
  let at = p.out_at + start;
  @if(owns_out) store4_out(at, v.x, v.y, v.z, v.w);
  @else {
    let left = min(p.count - start, 4u);
    for (var j = 0u; j < left; j++) {
      store_out(at + j, v[j]);
    }
  }
}
