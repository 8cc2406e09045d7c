// Neighbouring elements of a line of B, for kernels whose invocations meet several positions of it. All are loaded before the
// first is used. A missing element is zero, and is loaded from where one exists, because loads in branches are not in flight
// together. Lines have at least one element.
//
// A kernel that imports this declares const columns_met: how many elements. They lie p.dilation.z apart, which is 1 with groups.
//
// @operand b: in {f32, f16, bf16, bits128, bits64} // bits128, bits64: float32 or halves; each line is whole aligned groups of four
// @const   bfloat: bool // the halves of such groups are bfloat16, else float16
// @const   shift: u32 in 0..3 // with such groups, the place of the first element in its group

alias met_t = array<f32, columns_met>;

fn from_f32(bits: vec4<u32>) -> vec4<f32> {
  return bitcast<vec4<f32>>(bits);
}

fn from_halves(bits: vec2<u32>) -> vec4<f32> {
  @if(bfloat) return bitcast<vec4<f32>>(vec4<u32>(bits.x << 16u, bits.x & 0xffff0000u, bits.y << 16u, bits.y & 0xffff0000u));
  @else return vec4<f32>(f2_from_f16(bits.x), f2_from_f16(bits.y));
}

// Where a batch of B starts, in elements.
fn start_of_b(batch: u32) -> u32 {
  @if(b_is_bits128 || b_is_bits64) return 4u * p.b_at + batch * p.b_batch;
  @else return p.b_at + batch * p.b_batch;
}

@if(b_is_bits128 || b_is_bits64)
fn load4_b(group: u32) -> vec4<f32> {
  @if(b_is_bits128) return from_f32(load_b(group));
  @else return from_halves(load_b(group));
}

// The elements from place `first` on of the line that starts at `line`.
@if(b_is_bits128 || b_is_bits64)
fn elements_met(line: u32, first: i32) -> met_t {
  const groups = (shift + columns_met + 3u) / 4u;
  let first_group = (first - i32(shift)) / 4;
  let count = p.b_sizes.z / 4u;
  var found = met_t();
  for (var i = 0u; i < groups; i++) {
    let group = first_group + i32(i);
    let loaded = load4_b((line >> 2u) + u32(clamp(group, 0, i32(count) - 1)));
    let four = select(vec4<f32>(), loaded, bitcast<u32>(group) < count);
    for (var j = 0u; j < 4u; j++) {
      let place = 4u * i + j;
      if (place >= shift && place - shift < columns_met) {
        found[place - shift] = four[j];
      }
    }
  }
  return found;
}
@else
fn elements_met(line: u32, first: i32) -> met_t {
  var found = met_t();
  for (var i = 0u; i < columns_met; i++) {
    let place = first + i32(i * p.dilation.z);
    let loaded = load_b(line + u32(clamp(place, 0, i32(p.b_sizes.z) - 1)) * p.b_strides.z);
    found[i] = select(0.0, loaded, bitcast<u32>(place) < p.b_sizes.z);
  }
  return found;
}
