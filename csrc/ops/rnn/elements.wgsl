// The walk of the kernels of LSTM and GRU cells: an invocation calls cell(i, row, column) for element i of the state.

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let i = (group.y * groups.x + group.x) * 256u + local;
  if (i < p.count) {
    cell(i, i / p.width, i % p.width);
  }
}
