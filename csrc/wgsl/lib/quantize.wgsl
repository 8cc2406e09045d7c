// Affine quantization: x is stored as the integer x / scale + zero_point, held in an f32.

fn unbounded_quantized_f(x: f32, inverse_scale: f32, zero_point: f32) -> f32 {
  return round(x * inverse_scale) + zero_point;
}

// NaN becomes the least integer, as everywhere in PyTorch.
fn quantized_f(x: f32, inverse_scale: f32, zero_point: f32, least: f32, greatest: f32) -> f32 {
  if (is_nan_f(x)) {
    return least;
  }
  return min(max(unbounded_quantized_f(x, inverse_scale, zero_point), least), greatest);
}

fn is_quantized_inside(x: f32, inverse: f32, zero: f32, least: f32, greatest: f32) -> bool {
  let quantized = unbounded_quantized_f(x, inverse, zero);
  return !is_nan_f(x) && least <= quantized && quantized <= greatest;
}

// The derivative of the quantized value by the scale. Where the value is clamped, it is the integer less the zero
// point.
fn quantized_scale_grad_f(x: f32, scale: f32, zero_point: f32, least: f32, greatest: f32) -> f32 {
  let inverse = div_f(1.0, scale);
  let quantized = unbounded_quantized_f(x, inverse, zero_point);
  if (quantized < least) {
    return least - zero_point;
  }
  if (quantized > greatest) {
    return greatest - zero_point;
  }
  return ((quantized - zero_point) * scale - x) * inverse;
}
