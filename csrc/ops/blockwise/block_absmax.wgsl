// The greatest magnitude of each block of a tensor; NaN if the block has one. A workgroup takes a block.
//
// @operand absmax: out {f32}
// @operand x: in float

struct Params {
  count: u32,
  block: u32,
}

var<workgroup> greatest: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let id = group.y * groups.x + group.x;
  let first = id * p.block;
  if (first >= p.count) {
    return; // all invocations of the group
  }
  let last = first + min(p.block, p.count - first);
  var result = 0.0;
  for (var i = first + local; i < last; i += 64u) {
    result = max_flat_f(result, abs(load_x(p.x_at + i)));
  }
  greatest[local] = result;
  for (var half = 32u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (local < half) {
      greatest[local] = max_flat_f(greatest[local], greatest[local + half]);
    }
  }
  if (local == 0u) {
    store_absmax(p.absmax_at + id, greatest[0]);
  }
}
