// For kernels with an operand `mask`.

// Whether element i is nonzero.
fn is_selected(i: u32) -> bool {
  let value = load_mask(p.mask_at + i);
  @if(mask_is_float) return b_from_f(value);
  @elif(mask_is_int) return b_from_i(value);
  @elif(mask_is_long) return b_from_l(value);
  @else return b_from_c(value);
}
