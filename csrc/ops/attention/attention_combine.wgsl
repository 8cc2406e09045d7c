// Puts together what attention_decode.wgsl or attention_stream.wgsl computed of the splits of the keys. A workgroup
// takes one row. Each of its invocations adds up one group of four elements over some of the splits.
//
// @operand parts: in {bits128} // as attention/decode.wgsl writes them
// @grid groups p.batches * p.heads * p.queries

@if(has_out) import package::attention::results::{store_group};
import package::attention::decode::{Params, Row, lowest, finish_group};
// @require has_out && has_lse

struct Params {
  batches: u32,
  heads: u32,
  queries: u32,
  value_dims: u32,
  value_lanes: u32, // invocations for all groups of a row: a power of two, at most 64
  reach: u32,       // half of the invocations that have splits of their own to look at: a power of two, or 0
}

const threads = 128u;

var<workgroup> maxima: array<f32, threads>;
var<workgroup> sums: array<f32, threads>;
var<workgroup> groups: array<vec4<f32>, threads>;

struct Part {
  sum: f32,
  group: vec4<f32>,
}

// A split's part of a group, in terms of the maximum of all splits.
fn part_of(parts_at: u32, step: u32, split: u32, lane: u32, maximum: f32) -> Part {
  let at = parts_at + min(split, p.splits - 1u) * step;
  let state = bitcast<vec4<f32>>(load_parts(at));
  let group = bitcast<vec4<f32>>(load_parts(at + 1u + lane));
  let weight = exp_falling_f(state.x - maximum);
  let inside = split < p.splits;
  return Part(select(0.0, state.y * weight, inside), select(vec4<f32>(), group * weight, inside));
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let row = wid.y * workgroups.x + wid.x;
  if (row >= p.batches * p.heads * p.queries) {
    return;
  }
  let value_groups = (p.value_dims + 3u) / 4u;
  let step = value_groups + 1u;
  let parts_at = p.parts_at + row * p.splits * step;
  var maximum = lowest;
  for (var s = t; s < p.splits; s += threads) {
    maximum = max_flat_f(maximum, bitcast<f32>(load_parts(parts_at + s * step).x));
  }
  maxima[t] = maximum;
  workgroupBarrier();
  for (var apart = p.reach; apart > 0u; apart /= 2u) {
    if (t < apart) {
      maxima[t] = max_flat_f(maxima[t], maxima[t + apart]);
    }
    workgroupBarrier();
  }
  maximum = maxima[0];

  let lane = t % p.value_lanes;
  let slots = threads / p.value_lanes;
  var sum = 0.0;
  var group = vec4<f32>();
  // Four splits at a time, so that their loads take their time together.
  for (var s = t / p.value_lanes; s < p.splits; s += 4u * slots) {
    let place = min(lane, value_groups - 1u);
    let a = part_of(parts_at, step, s, place, maximum);
    let b = part_of(parts_at, step, s + slots, place, maximum);
    let c = part_of(parts_at, step, s + 2u * slots, place, maximum);
    let d = part_of(parts_at, step, s + 3u * slots, place, maximum);
    sum += a.sum + b.sum + (c.sum + d.sum);
    group += a.group + b.group + (c.group + d.group);
  }
  sums[t] = sum;
  groups[t] = group;
  workgroupBarrier();
  if (t < value_groups) {
    for (var i = t + p.value_lanes; i < threads; i += p.value_lanes) {
      sum += sums[i];
      group += groups[i];
    }
    let head = row / p.queries;
    finish_group(Row(head / p.heads, head % p.heads, row % p.queries, maximum, sum), t * 4u, group);
  }
}
