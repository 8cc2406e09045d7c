// Writes an error code if holds(x) is false for some element. A kernel that imports `main` defines holds().

struct Params {
  count: u32,
  error: u32, // the code to write
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  for (var i = (group.y * groups.x + group.x) * 256u + local; i < p.count;
       i += groups.x * groups.y * 256u) {
    if (!holds(load_x(p.x_at + i))) {
      atomicMax(&errors[0], p.error);
      return;
    }
  }
}
