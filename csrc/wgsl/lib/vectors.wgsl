// Vectors of 16 bytes.

// The first `bytes` of one vector, and the others of an older one.
fn merged_vector(old: vec4<u32>, fresh: vec4<u32>, bytes: u32) -> vec4<u32> {
  let bits = vec4<i32>(i32(bytes * 8u)) - vec4<i32>(0, 32, 64, 96);
  let partial = (vec4<u32>(1u) << vec4<u32>(clamp(bits, vec4<i32>(0), vec4<i32>(31)))) - 1u;
  let mask = select(partial, vec4<u32>(0xffffffffu), bits >= vec4<i32>(32));
  return (old & ~mask) | (fresh & mask);
}
