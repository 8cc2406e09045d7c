// The entry point of kernels on lists of tensors. Each workgroup works on 256 vectors of 16 bytes of one tensor. A
// kernel defines prepare(t), which each invocation calls once, and element(v, t), which update_vector calls.

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let group = id.y * groups.x + id.x;
  var t = 0u;
  while (t + 1u < tensors && group >= p.lists[(t + 1u) * list_stride].y) {
    t++;
  }
  let head = p.lists[t * list_stride];
  let i = (group - head.y) * 256u + local;
  if (i >= (head.x + lanes - 1u) / lanes) {
    return;
  }
  prepare(t);
  update_vector(t, i, min(head.x - i * lanes, lanes));
}
