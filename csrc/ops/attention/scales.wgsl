// How the kernels on subgroup matrices compute with bfloat16: as float16, of which WGSL has matrices.
//
// A bfloat16 has 8 significant bits. Times a power of two it is exactly a float16 if that has a magnitude from 2^-17 to
// 2^16. Below 2^-14 such a float16 is subnormal. Each head of q, k, v and g has a power of two of its own, which takes
// its largest magnitude to 2^15 or more, and below 2^16. The kernels divide by it in float32, which is exact too. Where a head
// does not fit, the kernels in blocks compute it. Both ways are dispatched, and a workgroup leaves at once if its head is
// not its own. attention_scales.wgsl decides that.
//
// scales: a pair of words for each head of queries, [batches * heads]. The first has bit 0 if the heads of q, k, v and g
// fit, and bit 1 if there are subnormal numbers among the float16. The second has a byte for q, k, v and g each, from the
// lowest one on: the exponent of the largest magnitude, biased by 127. In the backward pass, heads that share one of keys
// have the same pair.
//
// @operand scales: in {bits64} optional

@if(has_scales)
var<workgroup> of_head: u32;

// Whether the kernels on subgroup matrices compute a head. It has barriers, and its result is uniform.
@if(has_scales)
fn head_fits(batch: u32, head: u32, t: u32) -> bool {
  if (t == 0u) {
    of_head = load_scales(p.scales_at + batch * p.heads + head).x;
  }
  return (workgroupUniformLoad(&of_head) & 1u) == 1u;
}

// For exponents of normal numbers.
fn power_of_two(exponent: i32) -> f32 {
  return bitcast<f32>(u32(exponent + 127) << 23u);
}

// What the elements of a head are multiplied with, where its largest magnitude has that exponent.
@if(has_scales)
fn factor_of(top: i32) -> f32 {
  return power_of_two(15 - top);
}

// The exponent of the largest magnitude of q, k, v or g.
@if(has_scales)
fn top_of(scales: vec2<u32>, operand: u32) -> i32 {
  return i32(extractBits(scales.y, 8u * operand, 8u)) - 127;
}

// The exponent of the largest magnitude in a row of g; of a row of zeros: that of the head. `word` is what
// attention_ranges.wgsl wrote of the row.
@if(has_scales)
fn row_top_of(word: u32, g_top: i32) -> i32 {
  let top = i32(word & 0xffu) - 127;
  return select(top, g_top, top == -127);
}

// For the gradients of keys, queries of a row are staged times 2^-n, beside the power of two of their head. This is n.
@if(has_scales)
fn shift_of(word: u32, q_top: i32, g_top: i32) -> i32 {
  let room = i32((word >> 8u) & 0xffu) - 127 - (q_top - 29);
  return clamp(min(g_top - row_top_of(word, g_top), room), 0, 30);
}

// Eight bfloat16 as float16. pack2x16float may flush subnormal results.
@if(has_scales)
fn halves_from(group: vec4<u32>, factor: f32, with_subnormals: bool) -> vec4<u32> {
  if (with_subnormals) {
    return vec4<u32>(exact_pair(group.x, factor), exact_pair(group.y, factor), exact_pair(group.z, factor),
                     exact_pair(group.w, factor));
  }
  return vec4<u32>(scaled_pair(group.x, factor), scaled_pair(group.y, factor), scaled_pair(group.z, factor),
                   scaled_pair(group.w, factor));
}

@if(has_scales)
fn scaled_pair(pair: u32, factor: f32) -> u32 {
  return pack2x16float(vec2<f32>(bitcast<f32>(pair << 16u), bitcast<f32>(pair & 0xffff0000u)) * factor);
}

@if(has_scales)
fn exact_pair(pair: u32, factor: f32) -> u32 {
  return exact_half(bitcast<f32>(pair << 16u) * factor) |
         (exact_half(bitcast<f32>(pair & 0xffff0000u) * factor) << 16u);
}

// The float16 bits of a number below 2^16 with at most 11 significant ones. Subnormal float16 are multiples of 2^-24, which
// are the last bits of their sum with 0.5.
@if(has_scales)
fn exact_half(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let magnitude = bits & 0x7fffffffu;
  let normal = (magnitude - 0x38000000u) >> 13u;
  let subnormal = bitcast<u32>(bitcast<f32>(magnitude) + 0.5) - 0x3f000000u;
  return ((bits >> 16u) & 0x8000u) | select(normal, subnormal, magnitude < 0x38800000u);
}
