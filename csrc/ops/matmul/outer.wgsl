// The product of a column and a row of four, added to a block of sums: the step of kernels with blocks of 4 x 4 in registers.

fn outer_add(a: vec4<f32>, b: vec4<f32>, sum: mat4x4<f32>) -> mat4x4<f32> {
  return mat4x4<f32>(fma(vec4<f32>(a.x), b, sum[0]), fma(vec4<f32>(a.y), b, sum[1]), fma(vec4<f32>(a.z), b, sum[2]),
                     fma(vec4<f32>(a.w), b, sum[3]));
}
