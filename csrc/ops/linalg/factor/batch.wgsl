// The entry point of factorizations with a workgroup of 256 per matrix. A kernel defines decompose(batch, lane), which
// factorizes one matrix.

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let batch = wid.y * groups.x + wid.x;
  if (batch < p.batches) {
    decompose(batch, lane);
  }
}
