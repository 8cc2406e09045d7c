// Half-float conversions for devices with shader-f16, in place of the integer ones in lib/convert.wgsl.
enable f16;

fn f_from_f16(half: u32) -> f32 {
  return f32(bitcast<vec2<f16>>(half).x);
}

fn f2_from_f16(word: u32) -> vec2<f32> {
  return vec2<f32>(bitcast<vec2<f16>>(word));
}

fn f16_from_f(x: f32) -> u32 {
  return bitcast<u32>(vec2<f16>(f16(x), 0.0h));
}
