// Writes an error code if some element is below 0, above 1 (probabilities only), or NaN.
//
// @operand x: in float
// @const   range: {probability, not_negative}
// @errors

struct Params {
  count: u32,
  error: u32, // the code to write
}

fn holds(x: f32) -> bool {
  @if(probability) return x >= 0.0 && x <= 1.0 && !is_nan_f(x);
  @else return x >= 0.0 && !is_nan_f(x);
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
