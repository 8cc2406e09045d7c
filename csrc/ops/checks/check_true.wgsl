// Writes an error code if some element is zero. NaN does not count as zero.
//
// @operand x: in any
// @errors

import package::checks::elements::{Params, main};

fn holds(x: x_t) -> bool {
  @if(x_is_float) return b_from_f(x);
  @elif(x_is_i64) return b_from_l(x);
  @elif(x_is_c64) return b_from_c(x);
  @else return b_from_i(x);
}
