// What the kernels of matrix products share: C = fused(alpha * A @ B + beta * D), batched, for any strides.
//
// The epilogue. `fused` may read five further operands at the place of each element, and give that of a second result S.
// @operand e: in number akin a optional
// @operand f: in number akin a optional
// @operand g: in number akin a optional
// @operand h: in number akin a optional
// @operand i: in number akin a optional
// @operand s: words {f32, f16, bf16, bool} optional
// @operand seed: in {i64} optional // of random numbers
// @const   scaled: bool // alpha or beta is not 1
// @const   flipped: bool // A, B, C and D are the transposed ones of the product as it was asked for
// @const   fused_text: u32 in 0..255 // the number of the text that `fused` has, modulo 256; number 0 is none
// @const   fused_page: u32 in 0..255 // the number divided by 256
// @grid groups p.tiles_m * p.tiles_n * p.batch * p.splits // a tile of C, or of a piece of K, each

struct Params {
  m: u32,
  n: u32,
  k: u32,
  batch: u32,
  tiles_m: u32,
  tiles_n: u32,
  splits: u32,    // K is cut into this many pieces,
  k_piece: u32,   // of this size
  a_batch: u32,   // strides, in elements
  a_row: u32,
  a_column: u32,
  b_batch: u32,
  b_row: u32,
  b_column: u32,
  c_batch: u32,
  c_row: u32,
  c_column: u32,
  d_batch: u32,
  d_row: u32,
  d_column: u32,
  a_along_k: u32, // 1: invocations walk A along K, 0: across it
  b_along_k: u32,
  lanes: u32,     // of gemv.wgsl: invocations that share a row, a power of two
  k_block: u32,   // of blocks.wgsl: the columns of A in a block,
  k_padded: u32,  // the same, up to a whole number of steps,
  a_block: u32,   // and strides of a block
  b_block: u32,
  n_of_batch: u32, // where batches are joined along N: the columns of each
  // From here on only if `scaled`. The accumulator's type takes up to two words.
  alpha: vec4<u32>,
  beta: vec4<u32>,
  // From here on only with a fused text.
  origin: vec4<u32>,    // batch, row and column of C's first element in the whole product
  e_strides: vec4<u32>, // of a batch, a row and a column; the last is for column_of_further()
  f_strides: vec4<u32>,
  g_strides: vec4<u32>,
  h_strides: vec4<u32>,
  i_strides: vec4<u32>,
  s_strides: vec4<u32>,
}

// The type that products are summed in. Raw bits are floats that the kernel unpacks.
@if(a_is_int) alias acc_t = i32;
@elif(a_is_long) alias acc_t = vec2<u32>;
@elif(a_is_complex) alias acc_t = vec2<f32>;
@else alias acc_t = f32;

fn acc_add(a: acc_t, b: acc_t) -> acc_t {
  @if(a_is_long) return add_l(a, b);
  @else return a + b;
}

fn acc_mul(a: acc_t, b: acc_t) -> acc_t {
  @if(a_is_long) return mul_l(a, b);
  @elif(a_is_complex) return mul_c(a, b);
  @else return a * b;
}

fn acc_scalar(words: vec4<u32>) -> acc_t {
  @if(a_is_int) return bitcast<i32>(words.x);
  @elif(a_is_long) return words.xy;
  @elif(a_is_complex) return bitcast<vec2<f32>>(words.xy);
  @else return bitcast<f32>(words.x);
}

// An element of C, and one of S.
struct Fused {
  value: acc_t,
  second: f32, // truth is 1 or 0
}

fn fused(value: acc_t, e: acc_t, f: acc_t, g: acc_t, h: acc_t, i: acc_t, seed: vec2<u32>, batch: u32, row: u32,
         column: u32) -> Fused {
  var result = Fused(value, 0.0);
// @region fused = {}: statements that set result.value, and result.second where there is S, from these
  return result;
}

// Where the element of a further operand lies.
fn further_at(batch: u32, m: u32, n: u32, strides: vec4<u32>) -> u32 {
  return batch * strides.x + m * strides.y + column_of_further(n, strides);
}

// Applies `fused`. In a transposed product (`flipped`), m is the column and n the row of C that `fused` sees.
fn fuse(value: acc_t, batch: u32, m: u32, n: u32) -> Fused {
  var e = acc_t();
  var f = acc_t();
  var g = acc_t();
  var h = acc_t();
  var i = acc_t();
  var seed = vec2<u32>();
  @if(has_e) e = load_e(p.e_at + further_at(batch, m, n, p.e_strides));
  @if(has_f) f = load_f(p.f_at + further_at(batch, m, n, p.f_strides));
  @if(has_g) g = load_g(p.g_at + further_at(batch, m, n, p.g_strides));
  @if(has_h) h = load_h(p.h_at + further_at(batch, m, n, p.h_strides));
  @if(has_i) i = load_i(p.i_at + further_at(batch, m, n, p.i_strides));
  @if(has_seed) seed = load_seed(p.seed_at);
  let at = p.origin.xyz;
  @if(flipped) return fused(value, e, f, g, h, i, seed, batch + at.x, n + at.y, m + at.z);
  @else return fused(value, e, f, g, h, i, seed, batch + at.x, m + at.y, n + at.z);
}

fn finished(sum: acc_t, batch: u32, m: u32, n: u32) -> Fused {
  var value = sum;
  @if(scaled) value = acc_mul(acc_scalar(p.alpha), value);
  @if(has_d) {
    let d = load_d(p.d_at + batch * p.d_batch + m * p.d_row + n * p.d_column);
    @if(scaled) value = acc_add(value, acc_mul(acc_scalar(p.beta), d));
    @else value = acc_add(value, d);
  }
  return fuse(value, batch, m, n);
}

fn store_second(batch: u32, m: u32, n: u32, second: f32) {
  @if(has_s && !owns_s) {
    let at = p.s_at + further_at(batch, m, n, p.s_strides);
    @if(s_is_bool) store_s(at, select(0, 1, second != 0.0));
    @else store_s(at, second);
  }
}

// Four neighbours in a row of S, or in a column: the first is at (m, n), the next at (m + next.x, n + next.y). They fill
// whole words where the kernel owns S's words.
fn store4_second(batch: u32, m: u32, n: u32, next: vec2<u32>, second: vec4<f32>) {
  @if(owns_s) {
    let at = p.s_at + further_at(batch, m, n, p.s_strides);
    @if(s_is_bool) {
      let truth = select(vec4<i32>(), vec4<i32>(1), second != vec4<f32>());
      store4_s(at, truth.x, truth.y, truth.z, truth.w);
    }
    @else store4_s(at, second.x, second.y, second.z, second.w);
  }
  @else {
    store_second(batch, m, n, second.x);
    store_second(batch, m + next.x, n + next.y, second.y);
    store_second(batch, m + 2u * next.x, n + 2u * next.y, second.z);
    store_second(batch, m + 3u * next.x, n + 3u * next.y, second.w);
  }
}

// The element of C. That of S is stored. A kernel that owns S's words calls epilogue4() only.
fn epilogue(sum: acc_t, batch: u32, m: u32, n: u32) -> acc_t {
  let result = finished(sum, batch, m, n);
  @if(has_s) store_second(batch, m, n, result.second);
  return result.value;
}

// The same for four neighbours, see store4_second().
fn epilogue4(sums: array<acc_t, 4>, batch: u32, m: u32, n: u32, next: vec2<u32>) -> array<acc_t, 4> {
  let first = finished(sums[0], batch, m, n);
  let second = finished(sums[1], batch, m + next.x, n + next.y);
  let third = finished(sums[2], batch, m + 2u * next.x, n + 2u * next.y);
  let fourth = finished(sums[3], batch, m + 3u * next.x, n + 3u * next.y);
  @if(has_s) {
    store4_second(batch, m, n, next, vec4<f32>(first.second, second.second, third.second, fourth.second));
  }
  return array<acc_t, 4>(first.value, second.value, third.value, fourth.value);
}

// The row and column of tile `id` of a matrix. Tiles are numbered down bands of eight rows of tiles, so that workgroups
// that run at the same time share parts of A and B in the cache.
fn banded_place(id: u32) -> vec2<u32> {
  let band = id / (8u * p.tiles_n);
  let band_rows = min(8u, p.tiles_m - 8u * band);
  let in_band = id % (8u * p.tiles_n);
  return vec2<u32>(8u * band + in_band % band_rows, in_band / band_rows);
}

// What workgroup `id` computes with tiles of so many rows and columns.
struct BandedTile {
  c_batch: u32, // piece * batches + batch
  batch: u32,
  piece: u32,
  m0: u32,
  n0: u32,
  k_begin: u32,
  k_end: u32,
}

fn banded_tile(id: u32, sides: vec2<u32>) -> BandedTile {
  let tiles = p.tiles_m * p.tiles_n;
  let c_batch = id / tiles;
  let piece = c_batch / p.batch;
  let place = banded_place(id % tiles) * sides;
  let k_begin = piece * p.k_piece;
  return BandedTile(c_batch, c_batch % p.batch, piece, place.x, place.y, k_begin, min(k_begin + p.k_piece, p.k));
}

// Where the elements of matrices with strides lie. A convolution kernel defines its own versions.

// A's column k, relative to its row.
fn column_of_a(k: u32) -> u32 {
  return k * p.a_column;
}

// Element (k, n) of B. What depends on k or n alone is computed once for several elements.
alias b_row_t = u32;

alias b_column_t = u32;

fn row_of_b(k: u32) -> b_row_t {
  return k * p.b_row;
}

fn column_of_b(batch: u32, n: u32) -> b_column_t {
  return p.b_at + batch * p.b_batch + n * p.b_column;
}

fn b_element(row: b_row_t, column: b_column_t) -> b_t {
  return load_b(row + column);
}

// Whether B has such an element. A missing element is loaded as zero and must add nothing to the sum.
fn b_exists(row: b_row_t, column: b_column_t) -> bool {
  return true;
}

// C's column n, relative to its row.
fn column_of_c(n: u32) -> u32 {
  return n * p.c_column;
}

// The same for an operand of `fused`.
fn column_of_further(n: u32, strides: vec4<u32>) -> u32 {
  return n * strides.z;
}

// A missing element of B is loaded as zero, but zero times NaN or infinity is NaN. In kernels with missing elements,
// these functions record whether A has such values.
fn forget_not_finite() {}

fn note_not_finite(a: row_t) {}

// Whether such a value of A was recorded, in this or an earlier step.
fn found_not_finite() -> bool {
  return false;
}

fn row_where(condition: vec4<bool>, yes: row_t, no: row_t) -> row_t {
  return yes;
}
