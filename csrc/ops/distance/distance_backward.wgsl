// Gradient of distances with respect to the vectors of the first set. One invocation per element of
// a vector; it sums over all vectors of the second set.
//
// @operand out: out float // as x1
// @operand x1: in like out
// @operand x2: in like out
// @operand distance: in like out
// @operand gradient: in like out // of the distances
// @const   norm: {zero, one, two, below_two, above_two, infinity}
// @const   one_set: bool // x1 is x2, and distance and gradient are vectors

struct Params {
  batches: u32,
  rows1: u32,
  rows2: u32,
  width: u32,
  power: f32,
  x1_strides: vec4<u32>, // of batch, row, element
  x2_strides: vec4<u32>,
  out_strides: vec4<u32>,
  distance_strides: vec4<u32>, // of batch, row 1, row 2
  gradient_strides: vec4<u32>,
}

// The derivative of the distance s with respect to the difference d.
fn slope(d: f32, s: f32) -> f32 {
  @if(zero) return 0.0;
  @elif(one) return sign_f(d);
  @elif(two) return select(d / s, 0.0, s == 0.0);
  @elif(below_two)
  return select(sign_f(d) * pow_f(abs(d), p.power - 1.0) / pow_f(s, p.power - 1.0), 0.0,
                s == 0.0 || (d == 0.0 && p.power < 1.0));
  @elif(above_two)
  return select(d * pow_f(abs(d), p.power - 2.0) / pow_f(s, p.power - 1.0), 0.0, s == 0.0);
  @else return select(0.0, sign_f(d), abs(d) == s);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.batches * p.rows1 * p.width) {
    return;
  }
  let element = i % p.width;
  let row1 = i / p.width % p.rows1;
  let batch = i / p.width / p.rows1;
  let value = load_x1(p.x1_at + dot(vec3<u32>(batch, row1, element), p.x1_strides.xyz));
  var sum = 0.0;
  for (var row2 = 0u; row2 < p.rows2; row2++) {
    var pair = vec3<u32>(batch, row1, row2);
    @if(one_set) {
      if (row2 == row1) {
        continue;
      }
      // The index of the pair in the vectors of distances and gradients.
      let low = min(row1, row2);
      pair = vec3<u32>(low * (2u * p.rows1 - low - 1u) / 2u + max(row1, row2) - low - 1u, 0u, 0u);
    }
    let other = load_x2(p.x2_at + dot(vec3<u32>(batch, row2, element), p.x2_strides.xyz));
    let distance = load_distance(p.distance_at + dot(pair, p.distance_strides.xyz));
    let gradient = load_gradient(p.gradient_at + dot(pair, p.gradient_strides.xyz));
    sum += gradient * slope(value - other, distance);
  }
  store_out(p.out_at + dot(vec3<u32>(batch, row1, element), p.out_strides.xyz), sum);
}
