// The scales of bfloat16 heads, and which heads fit: scales.wgsl says what that means. A workgroup takes a head of queries,
// with the head of keys that it shares. In the backward pass it takes all heads that share these keys as one, because
// their gradients are summed up.
//
// A head fits if float16 times its power of two holds each element. Of q and k in the forward pass, small elements may be
// missing where that changes no score by more than 2^-12, which is less than the rounding of the weights to 8 bits. They are
// off by less than 2^(top - 29), and other elements are below 2^(top + 1). So a score is off by less than
// dims * |scale| * 2^(top of q + top of k - 27). Sums over keys or queries have no such bound, because a weight may be
// 1 for one element and 0 for all others.
//
// Exponents are limited so that all powers of two that the kernels multiply with are normal numbers.
//
// @operand scales: out {bits64}
// @operand ranges: in {bits64} // of attention_ranges.wgsl
// @const   backward: bool
// @grid groups p.batches * p.heads

import package::matmul::gemm_windows::{largest_of, exponent_of};

struct Params {
  batches: u32,
  heads: u32,
  group: u32, // heads of queries that share one of keys
  query_tiles: u32,
  key_tiles: u32,
  dims: u32,
  scale: f32, // of the scores
}

const normal = 30; // binades of float16's normal numbers
// Heads fit in neither pass if the exponent of their scores' bound is larger. The last digit of such a score, a float32, may
// be worth 2^-3 or more. Kernels on matrices and in blocks sum scores up in different orders, but the backward pass needs
// the scores that the forward pass had.
const most_scores = 20;
const exact = 33;  // binades down to the smallest float16 for which 8 bits are exact

// Of q, k, v and g.
var<workgroup> largest: array<atomic<u32>, 4>;

var<workgroup> smallest: array<atomic<u32>, 4>;

var<workgroup> special: atomic<u32>;

fn add(operand: u32, range: u32) {
  atomicMax(&largest[operand], largest_of(range));
  atomicMin(&smallest[operand], range & 0x7fffu);
  atomicOr(&special, range >> 31u);
}

// The exponents of the largest and the smallest magnitude of an operand. Without any they are 0.
struct Range {
  top: i32,
  least: i32,
}

fn range_of(operand: u32) -> Range {
  let most = atomicLoad(&largest[operand]);
  if (most == 0u) {
    return Range(0, 0);
  }
  return Range(exponent_of(most) - 127, exponent_of(atomicLoad(&smallest[operand])) - 127);
}

fn spans(range: Range, binades: i32) -> bool {
  return range.top - range.least < binades;
}

// No product of powers of two leaves the normal numbers.
fn is_near(exponent: i32) -> bool {
  return abs(exponent) <= 40;
}

fn byte_of(range: Range) -> u32 {
  return u32(range.top + 127);
}

// The words of a head.
fn scales_of(q: Range, k: Range, v: Range, g: Range) -> vec2<u32> {
  let magnitude = bitcast<u32>(p.scale) & 0x7fffffffu;
  let scale = i32(magnitude >> 23u) - 127;
  let is_scale = magnitude == 0u || abs(scale) <= 16;
  // The exponent of a bound of the scores: dims * |scale| * 2^(top of q + top of k + 2). With a scale of 0 it is below both
  // limits, because q.top + k.top is near.
  let scores = i32(32u - countLeadingZeros(p.dims - 1u)) + scale + 1 + q.top + k.top + 2;
  var fits = is_scale && atomicLoad(&special) == 0u && is_near(q.top) && is_near(k.top) && is_near(v.top) &&
             is_near(q.top + k.top) && spans(v, exact) && scores <= most_scores;
  var with_subnormals = !spans(v, normal);
  @if(backward) {
    let changes = g.top + v.top;
    fits = fits && is_near(g.top) && is_near(changes) && is_near(changes + q.top) && is_near(changes + k.top);
    fits = fits && spans(q, exact) && spans(k, exact) && spans(g, exact);
    with_subnormals = with_subnormals || !spans(q, normal) || !spans(k, normal) || !spans(g, normal);
  }
  @else {
    // Off by less than 2^(scores - 29).
    if (scores > 17) {
      fits = fits && spans(q, exact) && spans(k, exact);
      with_subnormals = with_subnormals || !spans(q, normal) || !spans(k, normal);
    }
  }
  return vec2<u32>(select(0u, 1u, fits) | select(0u, 2u, with_subnormals),
                   byte_of(q) | (byte_of(k) << 8u) | (byte_of(v) << 16u) | (byte_of(g) << 24u));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let id = wid.y * groups.x + wid.x;
  if (id >= p.batches * p.heads) {
    return;
  }
  if (t < 4u) {
    atomicStore(&largest[t], 0u);
    atomicStore(&smallest[t], 0x7fffu);
  }
  if (t == 0u) {
    atomicStore(&special, 0u);
  }
  workgroupBarrier();
  @if(backward) let heads = p.group;
  @else let heads = 1u;
  let of_queries = p.ranges_at + id / heads * heads * p.query_tiles;
  let key_head = id / p.heads * (p.heads / p.group) + id % p.heads / p.group;
  let of_keys = p.ranges_at + p.batches * p.heads * p.query_tiles + key_head * p.key_tiles;
  for (var tile = t; tile < heads * p.query_tiles; tile += 64u) {
    let pair = load_ranges(of_queries + tile);
    add(0u, pair.x);
    add(3u, pair.y);
  }
  for (var tile = t; tile < p.key_tiles; tile += 64u) {
    let pair = load_ranges(of_keys + tile);
    add(1u, pair.x);
    add(2u, pair.y);
  }
  workgroupBarrier();
  if (t == 0u) {
    store_scales(p.scales_at + id, scales_of(range_of(0u), range_of(1u), range_of(2u), range_of(3u)));
  }
}
