// Combines elements with those at places that index tensors select (walk.wgsl). Elements for one place are combined
// by one invocation in order (`out`), or atomically (`sum`, `result`).
//
// @operand in: in any
// @operand out: out like in optional
// @operand sum: sum like in optional
// @operand result: update like in {f32, f16, bf16, i32, i16, i8, u8, bool} optional
// @operand index0: in index optional
// @operand index1: in index optional
// @operand index2: in index optional
// @operand index3: in index optional
// @operand index4: in index optional
// @const   how: {add, multiply, minimum, maximum}
// @require has_out + has_sum + has_result == 1
// @require !has_sum || add
// @require !has_result || !add
// @require !has_index1 || has_index0
// @require !has_index2 || has_index1
// @require !has_index3 || has_index2
// @require !has_index4 || has_index3
// @errors

import package::index::walk::{Params, main};

fn out_begin() -> u32 {
  @if(has_sum) return p.sum_at;
  @elif(has_result) return p.result_at;
  @else return p.out_at;
}

fn in_begin() -> u32 {
  return p.in_at;
}

fn combine_result(old: in_t, value: in_t) -> in_t {
  @if(add && in_is_long) return add_l(old, value);
  @elif(add) return old + value;
  @elif(multiply && in_is_long) return mul_l(old, value);
  @elif(multiply && in_is_complex) return mul_c(old, value);
  @elif(multiply) return old * value;
  @elif(minimum && in_is_long) return min_l(old, value);
  @elif(minimum && in_is_float) return min_f(old, value);
  @elif(minimum) return min(old, value);
  @elif(in_is_long) return max_l(old, value);
  @elif(in_is_float) return max_f(old, value);
  @else return max(old, value);
}

fn place_element(out: u32, in: u32) {
  @if(has_sum) atomic_add_sum(out, load_in(in));
  @elif(has_result) atomic_update_result(out, load_in(in));
  @else store_out(out, combine_result(load_out(out), load_in(in)));
}
