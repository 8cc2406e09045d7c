// Groups of four elements of operands that are bound as raw bits.
//
// A kernel that imports this declares @const bfloat: whether halves are bfloat16.

fn from_halves(words: vec2<u32>) -> vec4<f32> {
  @if(bfloat) {
    return vec4<f32>(bitcast<f32>(words.x << 16u), bitcast<f32>(words.x & 0xffff0000u), bitcast<f32>(words.y << 16u),
                     bitcast<f32>(words.y & 0xffff0000u));
  }
  @else return vec4<f32>(f2_from_f16(words.x), f2_from_f16(words.y));
}
