// The gradients of scores that a program changes (score.wgsl), which kernels of the backward pass import too.

// The gradient of `score`, from that of what score_mod gives.
fn score_gradient(score: f32, given: f32, b: i32, h: i32, q: i32, k: i32) -> f32 {
  var result = given;
// @region gradient = {}: statements that set result, from the parameters
  return result;
}

// The gradient of the scaled product, from that of the score. What is not seen has the gradient 0, whatever score_mod's
// derivative is there.
fn final_gradient(product: f32, given: f32, batch: u32, head: u32, query: u32, key: u32) -> f32 {
  @if(modified) {
    if (given == 0.0) {
      return 0.0;
    }
    return score_gradient(product * p.scale, given, i32(p.first_batch + batch), i32(p.first_head + head), i32(query),
                          i32(key));
  }
  @else return given;
}
