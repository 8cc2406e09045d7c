// Copies the bits of elements to or from places that index tensors select (walk.wgsl). If several elements go to
// one place, one of them is stored whole. For elements smaller than a word, this takes atomics.
//
// @operand in: in bits
// @operand out: out like in optional
// @operand shared: update like in {bits8, bits16} optional // for `out` where invocations may store to one element at once
// @operand index0: in index optional
// @operand index1: in index optional
// @operand index2: in index optional
// @operand index3: in index optional
// @operand index4: in index optional
// @require has_out != has_shared
// @require !has_index1 || has_index0
// @require !has_index2 || has_index1
// @require !has_index3 || has_index2
// @require !has_index4 || has_index3
// @errors

import package::index::walk::{Params, main};

fn out_begin() -> u32 {
  @if(has_shared) return p.shared_at;
  @else return p.out_at;
}

fn in_begin() -> u32 {
  return p.in_at;
}

@if(has_shared) fn combine_shared(old: u32, value: u32) -> u32 {
  return value;
}

fn place_element(out: u32, in: u32) {
  @if(has_shared) atomic_update_shared(out, load_in(in));
  @else store_out(out, load_in(in));
}
