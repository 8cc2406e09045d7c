// An expression of pointwise/rows.yaml on each tensor of some lists.
//
// @operand y[]: words any
// @operand a[]: in like y optional // absent in place, where a is what y holds, and where a is a number
// @operand b[]: in like y optional
// @operand c[]: in like y optional
// @operand other: in {f32, f16, bf16, i64, i32, i16, c64} optional // b of all tensors
// @const   row: u32 in 0..511 // of pointwise/rows.yaml
// @const   a_is_number: bool // s0
// @const   b_is_number: bool // each tensor has its own
// @const   s0_is_own: bool // each tensor has its own s0, else they have one
// @require !has_other || (!has_b && !b_is_number)
// @require !has_b || !b_is_number
// @require !b_is_number || !s0_is_own
// @require !a_is_number || (!has_a && !s0_is_own)

import package::foreach::lists::{main};

struct Params {
  s0: vec4<u32>,
}

fn number(words: vec2<u32>) -> y_t {
  @if(y_is_float) return bitcast<f32>(words.x);
  @elif(y_is_int) return bitcast<i32>(words.x);
  @elif(y_is_complex) return bitcast<vec2<f32>>(words);
  @else return words;
}

fn prepare(t: u32) {}

fn element(v: ptr<function, Elements>, t: u32) {
  @if(has_a) let a = (*v).a;
  @elif(a_is_number) let a = number(p.s0.xy);
  @else let a = (*v).y;
  @if(has_b) let b = (*v).b;
  @elif(has_other) let b = load_other(p.other_at);
  @elif(b_is_number) let b = number(p.lists[t * list_stride].zw);
  @if(has_c) let c = (*v).c;
  @if(s0_is_own) let s0 = number(p.lists[t * list_stride].zw);
  @else let s0 = number(p.s0.xy);
  (*v).y = (
// @region expression: of a, b, c and s0
  );
}
