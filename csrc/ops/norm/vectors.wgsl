// Vectors of 16 bytes, in parts of four elements that are f32 in registers.
//
// @const dtype: {f32, f16, bf16} // of the elements

@if(f32) const kParts = 1u;
@else const kParts = 2u;

alias Parts = array<vec4<f32>, kParts>;

@if(!f32)
fn part_of_words(words: vec2<u32>) -> vec4<f32> {
  let low = words & vec2<u32>(0xffffu);
  let high = words >> vec2<u32>(16u);
  @if(f16) return vec4<f32>(f_from_f16(low.x), f_from_f16(high.x), f_from_f16(low.y), f_from_f16(high.y));
  @else return vec4<f32>(f_from_bf16(low.x), f_from_bf16(high.x), f_from_bf16(low.y), f_from_bf16(high.y));
}

@if(!f32)
fn word_of(low: f32, high: f32) -> u32 {
  @if(f16) return f16_from_f(low) | (f16_from_f(high) << 16u);
  @else return bf16_from_f(low) | (bf16_from_f(high) << 16u);
}

fn unpack(v: vec4<u32>) -> Parts {
  @if(f32) return Parts(bitcast<vec4<f32>>(v));
  @else return Parts(part_of_words(v.xy), part_of_words(v.zw));
}

fn pack(v: Parts) -> vec4<u32> {
  @if(f32) return bitcast<vec4<u32>>(v[0]);
  @else {
    return vec4<u32>(word_of(v[0].x, v[0].y), word_of(v[0].z, v[0].w),
                     word_of(v[1].x, v[1].y), word_of(v[1].z, v[1].w));
  }
}

// The sum of a part.
fn total(v: vec4<f32>) -> f32 {
  return v.x + v.y + (v.z + v.w);
}
