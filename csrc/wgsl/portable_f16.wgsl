// Half-float conversions for devices with shader-f16 whose compiler has no bitcast between u32 and vec2<f16>: naga's has
// none. f16() rounds to nearest, which packing alone need not, so that packing has nothing left to round.
enable f16;

fn f_from_f16(half: u32) -> f32 {
  return unpack2x16float(half).x;
}

fn f2_from_f16(word: u32) -> vec2<f32> {
  return unpack2x16float(word);
}

fn f16_from_f(x: f32) -> u32 {
  return pack2x16float(vec2<f32>(f32(f16(x)), 0.0));
}
