// out = a @ unpacked(w)^T + bias for many rows of `a`, in the tiles of weight_mm.wgsl.
//
// @operand out: out float
// @operand bias: in like out optional

import package::blockwise::packed::{prepare, unpacked};
import package::quantize::weight_mm::{main};

struct Params {
  m: u32,
  n: u32,
  k: u32, // a multiple of 4
  block: u32, // weights that share a scale
  a_row: u32, // distance of the rows of a
  tiles_n: u32,
}

// Four weights of row n, from column k on, a multiple of 4.
fn weights(n: u32, k: u32) -> vec4<f32> {
  return unpacked(n * p.k + k);
}

fn finish(sum: f32, n: u32) -> f32 {
  @if(has_bias) return sum + load_bias(p.bias_at + n);
  @else return sum;
}
