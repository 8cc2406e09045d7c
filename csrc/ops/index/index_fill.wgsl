// Stores one value to the places that index tensors select (walk.wgsl).
//
// @operand out: out bits
// @operand index0: in index optional
// @operand index1: in index optional
// @operand index2: in index optional
// @operand index3: in index optional
// @operand index4: in index optional
// @require !has_index1 || has_index0
// @require !has_index2 || has_index1
// @require !has_index3 || has_index2
// @require !has_index4 || has_index3
// @errors

import package::index::walk::{Params, main};

fn out_begin() -> u32 {
  return p.out_at;
}

fn in_begin() -> u32 {
  return 0u; // nothing is read
}

fn place_element(out: u32, in: u32) {
  @if(out_is_bits128) store_out(out, p.value);
  @elif(out_is_bits64) store_out(out, p.value.xy);
  @else store_out(out, p.value.x);
}
