// The values of 4-bit codes: NormalFloat, whose steps hold equal parts of a normal distribution, and a float of a sign,
// two bits of exponent and one of mantissa. Both are scaled to -1 to 1.

fn nf4_value_f(code: u32) -> f32 {
  switch (code) {
    case 0u: { return -1.0; }
    case 1u: { return -0.6961928009986877; }
    case 2u: { return -0.5250730514526367; }
    case 3u: { return -0.39491748809814453; }
    case 4u: { return -0.28444138169288635; }
    case 5u: { return -0.18477343022823334; }
    case 6u: { return -0.09105003625154495; }
    case 7u: { return 0.0; }
    case 8u: { return 0.07958029955625534; }
    case 9u: { return 0.16093020141124725; }
    case 10u: { return 0.24611230194568634; }
    case 11u: { return 0.33791524171829224; }
    case 12u: { return 0.44070982933044434; }
    case 13u: { return 0.5626170039176941; }
    case 14u: { return 0.7229568362236023; }
    default: { return 1.0; }
  }
}

fn fp4_value_f(code: u32) -> f32 {
  let magnitude = code & 7u;
  var value = 0.0;
  switch (magnitude) {
    case 0u: { }
    case 1u: { value = 0.0052083334885537624; }
    case 2u: { value = 0.6666666865348816; }
    case 3u: { value = 1.0; }
    case 4u: { value = 0.3333333432674408; }
    case 5u: { value = 0.5; }
    case 6u: { value = 0.1666666716337204; }
    default: { value = 0.25; }
  }
  return select(value, -value, code > 8u);
}

// The codes in the order of their values: 11, 10, 13, 12, 15, 14, 9, 0, 8, 1, 6, 7, 4, 5, 2, 3.
fn fp4_in_order(place: u32) -> u32 {
  let words = vec2<u32>(0x09efcdabu, 0x32547618u);
  return (words[place / 8u] >> (place % 8u * 4u)) & 15u;
}
