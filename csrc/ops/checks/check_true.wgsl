// Writes an error code if some element is zero. NaN does not count as zero.
//
// @operand x: in any
// @errors

struct Params {
  count: u32,
  error: u32, // the code to write
}

fn holds(x: x_t) -> bool {
  @if(x_is_float) return b_from_f(x);
  @elif(x_is_i64) return b_from_l(x);
  @elif(x_is_c64) return b_from_c(x);
  @else return b_from_i(x);
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
