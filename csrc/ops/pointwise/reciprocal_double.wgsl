// 1 / x of float64 numbers, by integer arithmetic: WGSL has no 64-bit floats.
//
// @operand x: in {f64}
// @operand y: out {f64}

struct Params {
  count: u32,
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let i = (group.y * groups.x + group.x) * 256u + local;
  if (i < p.count) {
    store_y(p.y_at + i, reciprocal_d(load_x(p.x_at + i)));
  }
}
