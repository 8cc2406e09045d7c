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
    let gradient = score_gradient(product * p.scale, given, i32(p.first_batch + batch), i32(p.first_head + head),
                                  i32(query), i32(key));
    return select(gradient, 0.0, given == 0.0);
  }
  @else return given;
}

// Four of them.
fn final_gradients(products: vec4<f32>, given: vec4<f32>, batch: u32, head: u32, queries: vec4<u32>,
                   keys: vec4<u32>) -> vec4<f32> {
  @if(modified) return vec4<f32>(final_gradient(products.x, given.x, batch, head, queries.x, keys.x),
                                 final_gradient(products.y, given.y, batch, head, queries.y, keys.y),
                                 final_gradient(products.z, given.z, batch, head, queries.z, keys.z),
                                 final_gradient(products.w, given.w, batch, head, queries.w, keys.w));
  @else return given;
}
