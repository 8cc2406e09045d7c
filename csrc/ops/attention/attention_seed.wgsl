// Where the random numbers of a call of attention start, as tensors: its backward pass draws the same ones.
//
// @operand seed: out {i64}
// @operand offset: out {i64} // in numbers of 32 bits

struct Params {
  philox: vec4<u32>, // key, counter
}

@compute @workgroup_size(1)
fn main() {
  store_seed(p.seed_at, p.philox.xy);
  store_offset(p.offset_at, vec2<u32>(p.philox.z << 2u, (p.philox.w << 2u) | (p.philox.z >> 30u)));
}
