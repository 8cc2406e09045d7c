// The walk of factorizations that give a workgroup of 256 to a matrix: decompose(batch, lane) handles one.

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let batch = wid.y * groups.x + wid.x;
  if (batch < p.batches) {
    decompose(batch, lane);
  }
}
