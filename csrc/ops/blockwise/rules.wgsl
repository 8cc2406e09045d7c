// The rules of bitsandbytes' optimizers, for one element.
//
// @const   rule: {adam, ademamix, momentum, lion, rmsprop, adagrad}
// @require has_square == (adam || ademamix)
// @require has_slow == ademamix

// What a rule keeps of an element: means, sums or a momentum. Only ademamix has `slow`, a second mean of gradients.
struct Kept {
  mean: f32,
  square: f32,
  slow: f32,
}

struct Params {
  count: u32,
  first_step: u32,
  scale: f32,  // of the gradient
  rate: f32,   // of the step, with corrections of the means
  decay: f32,  // factor of the parameter
  l2: f32,     // factor of the parameter in the gradient
  beta1: f32,
  beta1_rest: f32, // 1 - beta1
  beta2: f32,
  beta2_rest: f32,
  beta3: f32,
  beta3_rest: f32,
  slow: f32, // factor of the slow mean
  eps: f32,
}

// Takes a gradient into what is kept. Returns the direction of the step: the parameter becomes
// decay * parameter - rate * direction.
fn direction_of(kept: ptr<function, Kept>, parameter: f32, gradient: f32) -> f32 {
  let g = gradient * p.scale + p.l2 * parameter;
  let old = (*kept).mean;
  @if(momentum) {
    (*kept).mean = select(p.beta1 * old + g, g, p.first_step != 0u);
    return (*kept).mean;
  }
  @elif(lion) {
    let direction = p.beta1 * old + p.beta1_rest * g;
    (*kept).mean = p.beta2 * old + p.beta2_rest * g;
    return select(sign(direction), direction, is_nan_f(direction));
  }
  @elif(rmsprop) {
    (*kept).mean = p.beta1 * old + p.beta1_rest * g * g;
    return div_f(g, sqrt_f((*kept).mean) + p.eps);
  }
  @elif(adagrad) {
    (*kept).mean = old + g * g;
    return div_f(g, sqrt_f((*kept).mean) + p.eps);
  }
  @else {
    (*kept).mean = p.beta1 * old + p.beta1_rest * g;
    (*kept).square = p.beta2 * (*kept).square + p.beta2_rest * g * g;
    var mean = (*kept).mean;
    @if(ademamix) {
      (*kept).slow = p.beta3 * (*kept).slow + p.beta3_rest * g;
      mean += p.slow * (*kept).slow;
    }
    return div_f(mean, sqrt_f((*kept).square) + p.eps);
  }
}
