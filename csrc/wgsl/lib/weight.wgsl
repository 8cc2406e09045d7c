// Weights of 8 and 4 bits, unpacked to float32.

// The four signed bytes of a word, the lowest first.
fn unpack_signed_bytes(word: u32) -> vec4<f32> {
  return vec4<f32>((vec4<i32>(bitcast<i32>(word)) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));
}

// The low four of a word's eight weights -8 to 7, stored as 0 to 15.
fn unpack_signed_nibbles(word: u32) -> vec4<f32> {
  return vec4<f32>(vec4<i32>((vec4<u32>(word) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u)) - 8);
}
