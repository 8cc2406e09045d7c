// The mathematics of softmax, log-softmax and their gradients: for each kind, the value that is summed along
// the row, and the result computed from the sum. The value of a gradient is a pair: the gradient of the result,
// and the result of the forward pass.
// The kernel that imports this declares the constant `math`.

@if(softmax || log_softmax) alias value_t = f32;
@else alias value_t = vec2<f32>;

@if(softmax)
fn shifted(v: value_t, maximum: f32) -> value_t { return exp_falling_f(v - maximum); }
@elif(log_softmax)
fn shifted(v: value_t, maximum: f32) -> value_t { return v - maximum; }
@else
fn shifted(v: value_t, maximum: f32) -> value_t { return v; }

@if(softmax)
fn term(v: value_t) -> f32 { return v; }
@elif(log_softmax)
fn term(v: value_t) -> f32 { return exp_f(v); }
@elif(softmax_gradient)
fn term(v: value_t) -> f32 { return v.x * v.y; }
@else
fn term(v: value_t) -> f32 { return v.x; }

// What result() needs of the sum; once for each row.
@if(softmax)
fn of_sum(sum: f32) -> f32 { return 1.0 / sum; }
@elif(log_softmax)
fn of_sum(sum: f32) -> f32 { return log_f(sum); }
@else
fn of_sum(sum: f32) -> f32 { return sum; }

@if(softmax)
fn result(v: value_t, inverse: f32) -> f32 { return v * inverse; }
@elif(log_softmax)
fn result(v: value_t, log_sum: f32) -> f32 { return v - log_sum; }
@elif(softmax_gradient)
fn result(v: value_t, sum: f32) -> f32 { return (v.x - sum) * v.y; }
@else
fn result(v: value_t, sum: f32) -> f32 { return v.x - exp_f(v.y) * sum; }

// With +infinity or NaN anywhere, or -infinity everywhere, all results of the row are NaN.
@if(softmax || log_softmax)
fn checked_maximum(maximum: f32) -> f32 { return select(nan_f(), maximum, is_finite_f(maximum)); }
