// A step of an optimizer whose states are float32. An invocation takes four elements. Where the step's size follows
// from the norm of all directions, they are written to `direction`, and the parameter stays.
//
// @operand parameter: words float
// @operand gradient: in like parameter
// @operand mean: out {f32}
// @operand square: out {f32} optional
// @operand slow: out {f32} optional
// @operand direction: out {f32} optional

import package::blockwise::rules::{Kept, Params, direction_of};

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let start = ((group.y * groups.x + group.x) * 256u + local) * 4u;
  if (start >= p.count) {
    return;
  }
  let left = min(p.count - start, 4u);
  var parameters = vec4<f32>();
  for (var j = 0u; j < left; j++) {
    let i = start + j;
    var kept = Kept();
    kept.mean = load_mean(p.mean_at + i);
    @if(has_square) kept.square = load_square(p.square_at + i);
    @if(has_slow) kept.slow = load_slow(p.slow_at + i);
    let parameter = load_parameter(p.parameter_at + i);
    let direction = direction_of(&kept, parameter, load_gradient(p.gradient_at + i));
    store_mean(p.mean_at + i, kept.mean);
    @if(has_square) store_square(p.square_at + i, kept.square);
    @if(has_slow) store_slow(p.slow_at + i, kept.slow);
    @if(has_direction) store_direction(p.direction_at + i, direction);
    parameters[j] = p.decay * parameter - p.rate * direction;
  }
  @if(!has_direction) {
    if (left == 4u) {
      store4_parameter(p.parameter_at + start, parameters.x, parameters.y, parameters.z, parameters.w);
      return;
    }
    for (var j = 0u; j < left; j++) {
      @if(!owns_parameter) store_parameter(p.parameter_at + start + j, parameters[j]);
    }
  }
}
