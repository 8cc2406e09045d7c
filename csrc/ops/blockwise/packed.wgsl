// How weights that are packed in blocks are read: a weight is a code times a scale, plus an offset. Its place is its
// number in the matrix, counted along rows; all packings but bytes have blocks of a multiple of 8 weights.
//
// @operand w: in {bits32}          // codes
// @operand scale: in {f32, f16, u8} // of blocks, or indices into scale_table
// @operand sub: in {bits32} optional // scales of parts of a block
// @operand table: in {f32} optional // the values of codes: 256 for bytes; 16 other ones for nf4
// @operand scale_table: in {f32} optional // the 256 values of the blocks' scales,
// @operand scale_scale: in {f32} optional // what they are multiplied by, for 256 blocks each,
// @operand scale_offset: in {f32} optional // and what is added
// @const   packing: {nf4, fp4, bytes, q4_0, q8_0, q4_k, q6_k}
// @require has_sub == (q4_k || q6_k)
// @require (has_table || !bytes) && (!has_table || bytes || nf4)
// @require has_scale_table == has_scale_scale && has_scale_table == has_scale_offset
// @require !has_scale_table || nf4 || fp4

// The values of 4-bit codes. In workgroup memory, because an index that is not known makes of a constant array a
// private one in slow memory.
@if(nf4 || fp4) var<workgroup> values: array<f32, 16>;

// Every invocation of a workgroup calls it before it reads weights, in uniform control flow.
fn prepare(local: u32) {
  @if(nf4 || fp4) {
    if (local < 16u) {
      @if(has_table) values[local] = load_table(p.table_at + local);
      @elif(nf4) values[local] = nf4_value_f(local);
      @else values[local] = fp4_value_f(local);
    }
    workgroupBarrier();
  }
}

// The codes of weights i to i + 3 as numbers; i is a multiple of 4.
fn codes(i: u32) -> vec4<f32> {
  @if(nf4 || fp4) {
    // The first weight of a byte lies in its high half.
    let word = load_w(p.w_at + i / 8u) >> (i % 8u * 4u);
    return vec4<f32>(values[(word >> 4u) & 15u], values[word & 15u], values[(word >> 12u) & 15u],
                     values[(word >> 8u) & 15u]);
  }
  @elif(bytes) {
    let word = load_w(p.w_at + i / 4u);
    return vec4<f32>(load_table(p.table_at + (word & 255u)), load_table(p.table_at + ((word >> 8u) & 255u)),
                     load_table(p.table_at + ((word >> 16u) & 255u)), load_table(p.table_at + (word >> 24u)));
  }
  @elif(q8_0) return unpack_signed_bytes(load_w(p.w_at + i / 4u));
  @elif(q6_k) {
    // 32 words of low halves, then 16 words of two high bits each.
    let block = p.w_at + i / 256u * 48u;
    let low = load_w(block + i % 256u / 8u) >> (i % 8u * 4u);
    let high = load_w(block + 32u + i % 256u / 16u) >> (i % 16u * 2u);
    let low4 = (vec4<u32>(low) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u);
    let high4 = (vec4<u32>(high) >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(3u);
    return vec4<f32>(vec4<i32>(low4 | (high4 << vec4<u32>(4u))) - 32);
  }
  @else {
    let word = load_w(p.w_at + i / 8u) >> (i % 8u * 4u);
    let codes4 = (vec4<u32>(word) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u);
    @if(q4_0) return vec4<f32>(vec4<i32>(codes4) - 8);
    @else return vec4<f32>(codes4);
  }
}

// The scale of weights i to i + 7, and their offset, which is 0 except in q4_k; i is a multiple of 8.
fn scale_of(i: u32) -> vec2<f32> {
  @if(has_scale_table) {
    let block = i / p.block;
    let value = load_scale_table(p.scale_table_at + u32(load_scale(p.scale_at + block)));
    let scale = value * load_scale_scale(p.scale_scale_at + block / 256u);
    return vec2<f32>(scale + load_scale_offset(p.scale_offset_at), 0.0);
  }
  @elif(q4_k) {
    let block = i / 256u;
    let sub = p.sub_at + block * 3u;
    let part = i % 256u / 32u;
    let shift = part % 4u * 8u;
    // Of eight parts: six bits each of the scale and of the offset. The first four parts have them in one byte.
    var first = (load_sub(sub) >> shift) & 255u;
    var second = (load_sub(sub + 1u) >> shift) & 255u;
    if (part >= 4u) {
      let low = load_sub(sub + 2u) >> shift;
      first = (low & 15u) | ((first >> 6u) << 4u);
      second = ((low >> 4u) & 15u) | ((second >> 6u) << 4u);
    }
    let at = p.scale_at + block * 2u;
    return vec2<f32>(f32(load_scale(at)) * f32(first & 63u), -f32(load_scale(at + 1u)) * f32(second & 63u));
  }
  @elif(q6_k) {
    let block = i / 256u;
    let part = i % 256u / 16u;
    let word = load_sub(p.sub_at + block * 4u + part / 4u);
    let factor = (bitcast<i32>(word) << (24u - part % 4u * 8u)) >> 24u;
    return vec2<f32>(f32(load_scale(p.scale_at + block)) * f32(factor), 0.0);
  }
  @else return vec2<f32>(f32(load_scale(p.scale_at + i / p.block)), 0.0);
}

// Weights i to i + 3; i is a multiple of 4.
fn unpacked(i: u32) -> vec4<f32> {
  @if(bytes) {
    // Blocks of bytes have any size.
    return codes(i) * vec4<f32>(scale_of(i).x, scale_of(i + 1u).x, scale_of(i + 2u).x, scale_of(i + 3u).x);
  }
  let scale = scale_of(i);
  @if(q4_k) return codes(i) * scale.x + scale.y;
  @else return codes(i) * scale.x;
}
