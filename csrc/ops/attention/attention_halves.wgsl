// Heads of bfloat16 as float16 times their powers of two, which scales.wgsl describes. Heads that do not fit are undefined.
//
// @operand out: out {bits128} // [batch][head][row][dimension], groups of eight elements
// @operand scales: in {bits64} optional
// @operand a: in {bits128}
// @operand pairs: in {bits64} optional // of gradient.wgsl: queries get powers of two of their own, too, see shift_of()
// @require has_scales
// @grid invocations p.batches * p.heads * p.rows * p.groups

import package::attention::scales::{power_of_two, factor_of, top_of, row_top_of, shift_of, halves_from};

struct Params {
  a_strides: vec4<u32>, // of batch, head, row and dimension
  batches: u32,
  heads: u32,
  rows: u32,
  groups: u32,          // of a row
  scaled_heads: u32,    // those of queries, which have the scales
  operand: u32,         // operand_q and so on of operands.wgsl
}

// operand_q and operand_g, without the operands that operands.wgsl declares.
const of_q = 0u;

const of_g = 3u;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let id = (wid.y * workgroups.x + wid.x) * 256u + t;
  let row = id / p.groups;
  let head = row / p.rows % p.heads;
  let batch = row / p.rows / p.heads;
  if (batch >= p.batches) {
    return;
  }
  let words = load_scales(p.scales_at + batch * p.scaled_heads + head * (p.scaled_heads / p.heads));
  let at = batch * p.a_strides.x + head * p.a_strides.y + row % p.rows * p.a_strides.z + id % p.groups * 8u;
  var factor = factor_of(top_of(words, p.operand));
  @if(has_pairs) {
    let of_row = load_pairs(p.pairs_at + p.batches * p.heads * p.rows + 2u + row).y;
    factor *= power_of_two(-shift_of(of_row, top_of(words, of_q), top_of(words, of_g)));
  }
  store_out(p.out_at + id, halves_from(load_a(p.a_at + at / 8u), factor, true));
}
