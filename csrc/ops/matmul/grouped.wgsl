// What the kernels for floating point matrices whose elements lie in groups of four share. A kernel imports this before
// Params, acc_t, acc_scalar, fuse, BandedTile and column_of_c of product.wgsl: then these declarations of e to i hold. It imports
// in_batch and column_in_batch of joined.wgsl, too.
//
// @operand c: words {f32, f16, bf16, bits128} // bits128: of float32, where groups of four are aligned and end at the edge
// @operand a: in {bits128, bits64} // four float32, or four halves; groups are aligned, and behind the edges they are zero
// @operand b: in like a
// @operand d: in {f32, f16, bf16} optional
// @operand e: in float optional
// @operand f: in float optional
// @operand g: in float optional
// @operand h: in float optional
// @operand i: in float optional
// @const   bfloat: bool // A's and B's halves are bfloat16, else float16
// @const   a_along_k: bool // groups of four run along K, else across it
// @const   b_along_k: bool
// @const   c_along_m: bool // groups of four neighbours in C are one column's, else one row's
// @const   d_in_c: bool // C's own memory is D
// @const   rolled: bool // loops over a step of K stay loops, for software adapters, which compile unrolled ones slowly
// @require !d_in_c || !(has_d || owns_c)

// How far apart the columns of an invocation's groups of four lie. Where elements are stored one by one, a kernel may define
// another distance than 1, so that neighbouring invocations store neighbouring columns.
const columns_apart = 1u;

// The first column of group `group` of a tile.
fn first_of_group(group: u32) -> u32 {
  return group / columns_apart * (4u * columns_apart) + group % columns_apart;
}

// Where the last group of four of `count` elements starts. If it is not full, the matrix has zeros behind its elements.
fn last_group(count: u32) -> u32 {
  return (count - 1u) / 4u * 4u;
}

@if(a_is_bits128)
fn widened4(bits: vec4<u32>) -> vec4<f32> {
  return bitcast<vec4<f32>>(bits);
}
@elif(!bfloat)
fn widened4(bits: vec2<u32>) -> vec4<f32> {
  return vec4<f32>(f2_from_f16(bits.x), f2_from_f16(bits.y));
}
@else
fn widened4(bits: vec2<u32>) -> vec4<f32> {
  return bitcast<vec4<f32>>(vec4<u32>(bits.x << 16u, bits.x & 0xffff0000u, bits.y << 16u, bits.y & 0xffff0000u));
}

fn load4_a(group: u32) -> vec4<f32> {
  return widened4(load_a(group));
}

fn load4_b(group: u32) -> vec4<f32> {
  return widened4(load_b(group));
}

fn columns_of_c(n: vec4<u32>) -> vec4<u32> {
  return vec4<u32>(column_of_c(n.x), column_of_c(n.y), column_of_c(n.z), column_of_c(n.w));
}

// A group of four in C, from row m and column n on.
fn store_group_c(tile_place: BandedTile, m: u32, n_of_tile: u32, acc: vec4<f32>) {
  let here = in_batch(tile_place, n_of_tile);
  let n = column_in_batch(n_of_tile);
  @if(c_along_m) let next = vec2<u32>(1u, 0u);
  @else let next = vec2<u32>(0u, columns_apart);
  // Elements of a group behind the edge are not stored. For them the last one's operands are read.
  let rows_of_group = min(vec4<u32>(m) + vec4<u32>(0u, 1u, 2u, 3u) * next.x, vec4<u32>(p.m - 1u));
  let columns_of_group = min(vec4<u32>(n) + vec4<u32>(0u, 1u, 2u, 3u) * next.y, vec4<u32>(p.n - 1u));
  let batch = here.batch;
  let c = here.c_batch * p.c_batch + m * p.c_row;
  @if(c_is_bits128) let group = (p.c_at * 4u + c + column_of_c(n)) >> 2u;
  @elif(c_along_m) let at = vec4<u32>(p.c_at + here.c_batch * p.c_batch + column_of_c(n)) + rows_of_group * p.c_row;
  @else let at = vec4<u32>(p.c_at + c) + columns_of_c(columns_of_group);
  var value = acc;
  @if(scaled) value *= acc_scalar(p.alpha);
  var d = vec4<f32>();
  @if(d_in_c && c_is_bits128) d = bitcast<vec4<f32>>(load_c(group));
  @elif(d_in_c) d = vec4<f32>(load_c(at.x), load_c(at.y), load_c(at.z), load_c(at.w));
  @if(has_d) {
    let i = vec4<u32>(p.d_at + batch * p.d_batch) + rows_of_group * p.d_row + columns_of_group * p.d_column;
    d = vec4<f32>(load_d(i.x), load_d(i.y), load_d(i.z), load_d(i.w));
  }
  @if(scaled && (d_in_c || has_d)) value += acc_scalar(p.beta) * d;
  @elif(d_in_c || has_d) value += d;
  let first = fuse(value.x, batch, rows_of_group.x, columns_of_group.x);
  let second = fuse(value.y, batch, rows_of_group.y, columns_of_group.y);
  let third = fuse(value.z, batch, rows_of_group.z, columns_of_group.z);
  let fourth = fuse(value.w, batch, rows_of_group.w, columns_of_group.w);
  value = vec4<f32>(first.value, second.value, third.value, fourth.value);
  let of_s = vec4<f32>(first.second, second.second, third.second, fourth.second);
  @if(c_is_bits128 || owns_c) {
    @if(c_is_bits128) store_c(group, bitcast<vec4<u32>>(value));
    @else store4_c(at.x, value.x, value.y, value.z, value.w);
    @if(has_s) store4_second(batch, m, n, next, of_s);
  }
  @else {
    // Rows of halves that are no whole words: only the ends of four neighbours may share words with others.
    @if(!c_is_f32) {
      if (all(at == vec4<u32>(at.x) + vec4<u32>(0u, 1u, 2u, 3u))) {
        store4_c(at.x, value.x, value.y, value.z, value.w);
        @if(has_s) store4_second(batch, m, n, next, of_s);
        return;
      }
    }
    for (var j = 0u; j < 4u; j++) {
      if (m + j * next.x < p.m && n + j * next.y < p.n) {
        store_c(at[j], value[j]);
        @if(has_s) store_second(batch, rows_of_group[j], columns_of_group[j], of_s[j]);
      }
    }
  }
}

// A kernel with missing elements of B defines a version that leaves out their products with NaN and infinity.
fn without_missing(sums: mat4x4<f32>, here: BandedTile, m: u32, n: u32) -> mat4x4<f32> {
  return sums;
}

fn store_groups(here: BandedTile, m: u32, n: u32, sums: mat4x4<f32>) {
  if (m >= p.m || n >= p.n) {
    return;
  }
  var acc = without_missing(sums, here, m, n);
  @if(c_along_m) {
    acc = transpose(acc);
    store_group_c(here, m, n, acc[0]);
    if (n + columns_apart < p.n) { store_group_c(here, m, n + columns_apart, acc[1]); }
    if (n + 2u * columns_apart < p.n) { store_group_c(here, m, n + 2u * columns_apart, acc[2]); }
    if (n + 3u * columns_apart < p.n) { store_group_c(here, m, n + 3u * columns_apart, acc[3]); }
  }
  @else {
    store_group_c(here, m, n, acc[0]);
    if (m + 1u < p.m) { store_group_c(here, m + 1u, n, acc[1]); }
    if (m + 2u < p.m) { store_group_c(here, m + 2u, n, acc[2]); }
    if (m + 3u < p.m) { store_group_c(here, m + 3u, n, acc[3]); }
  }
}
