// A step of an optimizer whose states are codes of 8 bits, in blocks of 256 with a scale each. A workgroup takes a
// block, an invocation four elements of it: the states become numbers, take the gradient, and are quantized anew.
//
// @operand parameter: words float
// @operand gradient: in like parameter
// @operand mean: words {u8}
// @operand mean_absmax: out {f32}
// @operand mean_table: in {f32} // the 256 values of codes, ascending
// @operand square: words {u8} optional
// @operand square_absmax: out {f32} optional
// @operand square_table: in {f32} optional
// @operand slow: words {u8} optional // with the mean's table
// @operand slow_absmax: out {f32} optional
// @require has_square == has_square_absmax && has_square == has_square_table
// @require has_slow == has_slow_absmax

import package::blockwise::nearest::{bounds_below, scaled};
import package::blockwise::rules::{Kept, Params, direction_of};

const kBlock = 256u;
const kInvocations = 64u;

// Middles of neighbouring values: of the mean's table, then of the square's.
@if(has_square) var<workgroup> bounds: array<f32, 2u * kBlock>;
@if(!has_square) var<workgroup> bounds: array<f32, kBlock>;
var<workgroup> greatest: array<vec3<f32>, kInvocations>;

fn fill_bounds(local: u32) {
  for (var i = local; i < kBlock; i += kInvocations) {
    let is_last = i + 1u == kBlock;
    let next = min(i + 1u, kBlock - 1u);
    let middle = (load_mean_table(p.mean_table_at + i) + load_mean_table(p.mean_table_at + next)) * 0.5;
    bounds[i] = select(middle, inf_f(), is_last);
    @if(has_square) {
      let other = (load_square_table(p.square_table_at + i) + load_square_table(p.square_table_at + next)) * 0.5;
      bounds[kBlock + i] = select(other, inf_f(), is_last);
    }
  }
}

fn code(x: f32, absmax: f32, first: u32, is_partial: bool) -> i32 {
  return i32(bounds_below(scaled(x, absmax, is_partial), first, kBlock));
}

fn greater(a: vec3<f32>, b: vec3<f32>) -> vec3<f32> {
  return vec3<f32>(max_flat_f(a.x, b.x), max_flat_f(a.y, b.y), max_flat_f(a.z, b.z));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let block = group.y * groups.x + group.x;
  if (block * kBlock >= p.count) {
    return; // all invocations of the group
  }
  let is_partial = p.count - block * kBlock < kBlock;
  fill_bounds(local);
  let start = block * kBlock + local * 4u;
  let left = min(p.count - min(start, p.count), 4u);
  let mean_absmax = load_mean_absmax(p.mean_absmax_at + block);
  @if(has_square) let square_absmax = load_square_absmax(p.square_absmax_at + block);
  @if(has_slow) let slow_absmax = load_slow_absmax(p.slow_absmax_at + block);
  var all = array<Kept, 4>();
  var parameters = vec4<f32>();
  var most = vec3<f32>();
  for (var j = 0u; j < left; j++) {
    let i = start + j;
    var kept = Kept();
    kept.mean = load_mean_table(p.mean_table_at + u32(load_mean(p.mean_at + i))) * mean_absmax;
    @if(has_square) {
      kept.square = load_square_table(p.square_table_at + u32(load_square(p.square_at + i))) * square_absmax;
    }
    @if(has_slow) {
      kept.slow = load_mean_table(p.mean_table_at + u32(load_slow(p.slow_at + i))) * slow_absmax;
    }
    let parameter = load_parameter(p.parameter_at + i);
    let direction = direction_of(&kept, parameter, load_gradient(p.gradient_at + i));
    parameters[j] = p.decay * parameter - p.rate * direction;
    all[j] = kept;
    most = greater(most, abs(vec3<f32>(kept.mean, kept.square, kept.slow)));
  }
  greatest[local] = most;
  for (var half = kInvocations / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (local < half) {
      greatest[local] = greater(greatest[local], greatest[local + half]);
    }
  }
  // Behind it all have read the old scales, and the bounds are there.
  workgroupBarrier();
  most = greatest[0];
  if (local == 0u) {
    store_mean_absmax(p.mean_absmax_at + block, most.x);
    @if(has_square) store_square_absmax(p.square_absmax_at + block, most.y);
    @if(has_slow) store_slow_absmax(p.slow_absmax_at + block, most.z);
  }
  var means = vec4<i32>();
  var squares = vec4<i32>();
  var slows = vec4<i32>();
  for (var j = 0u; j < left; j++) {
    means[j] = code(all[j].mean, most.x, 0u, is_partial);
    @if(has_square) squares[j] = code(all[j].square, most.y, kBlock, is_partial);
    @if(has_slow) slows[j] = code(all[j].slow, most.z, 0u, is_partial);
  }
  if (left == 4u) {
    store4_parameter(p.parameter_at + start, parameters.x, parameters.y, parameters.z, parameters.w);
    store4_mean(p.mean_at + start, means.x, means.y, means.z, means.w);
    @if(has_square) store4_square(p.square_at + start, squares.x, squares.y, squares.z, squares.w);
    @if(has_slow) store4_slow(p.slow_at + start, slows.x, slows.y, slows.z, slows.w);
    return;
  }
  // Words are owned only where the tensor has whole ones.
  for (var j = 0u; j < left; j++) {
    @if(!owns_parameter) store_parameter(p.parameter_at + start + j, parameters[j]);
    @if(!owns_mean) store_mean(p.mean_at + start + j, means[j]);
    @if(has_square && !owns_square) store_square(p.square_at + start + j, squares[j]);
    @if(has_slow && !owns_slow) store_slow(p.slow_at + start + j, slows[j]);
  }
}
