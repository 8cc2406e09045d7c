// The parameters of the kernels of matrix products: C = alpha * A @ B + beta * D, batched, for any
// strides (in elements).

struct GemmParams {
  m: u32,
  n: u32,
  k: u32,
  batch: u32,
  tiles_m: u32,
  tiles_n: u32,
  splits: u32, // K is cut into this many pieces,
  k_piece: u32, // of this size; of gemm_f32.wgsl, a multiple of 8
  a_offset: u32,
  a_batch: u32,
  a_row: u32,
  a_column: u32,
  b_offset: u32,
  b_batch: u32,
  b_row: u32,
  b_column: u32,
  c_offset: u32,
  c_batch: u32,
  c_row: u32,
  c_column: u32,
  d_offset: u32,
  d_batch: u32,
  d_row: u32,
  d_column: u32,
  alpha: vec2<u32>,
  beta: vec2<u32>,
  // Whether invocations walk A and B along K, or across it: 0 or 1.
  a_along_k: u32,
  b_along_k: u32,
  lanes: u32, // of gemv.wgsl: invocations that share a row, a power of two
  unused: u32,
  extra: array<vec4<u32>, 11>, // for the hooks of convolutions
}
