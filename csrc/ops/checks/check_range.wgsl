// Writes an error code if some element is below 0, above 1 (probabilities only), or NaN.
//
// @operand x: in float
// @const   range: {probability, not_negative}
// @errors

import package::checks::elements::{Params, main};

fn holds(x: f32) -> bool {
  @if(probability) return x >= 0.0 && x <= 1.0 && !is_nan_f(x);
  @else return x >= 0.0 && !is_nan_f(x);
}
