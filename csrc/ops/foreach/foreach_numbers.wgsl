// An expression of pointwise/rows.yaml of each tensor of a list and a number on the device, its own.
//
// @operand y[]: words float
// @operand a[]: in like y optional // absent in place, where a is what y holds
// @operand b[]: numbers {f32}
// @const   row: u32 in 0..511 // of pointwise/rows.yaml

import package::foreach::lists::{main};

struct Params {
  s0: f32,
}

var<private> of_tensor: f32;

fn prepare(t: u32) {
  of_tensor = b_of(t);
}

fn element(v: ptr<function, Elements>, t: u32) {
  @if(has_a) let a = (*v).a;
  @else let a = (*v).y;
  let b = of_tensor;
  let s0 = p.s0;
  (*v).y = (
// @region expression: of a, b and s0
  );
}
