// gemm.wgsl for float32 on adapters that compute on cores of a CPU. There, invocations that meet at barriers cost more
// than their loads: each has a stack of its own. So an invocation computes a strip of C alone, of one, four or eight rows
// and one or four columns, from four of K at a time, and keeps the sums in registers.
//
// @operand c: out {f32}
// @operand a: in {bits128, f32} // bits128: groups of four are aligned and end at the edges
// @operand b: in {bits128, f32}
// @operand d: in {f32} optional
// @operand e: in float optional
// @operand f: in float optional
// @operand g: in float optional
// @operand h: in float optional
// @operand i: in float optional
// @const   height: {rows_1, rows_4, rows_8} // of a strip
// @const   width: {columns_1, columns_4}
// @const   a_along_k: bool // groups of four run along K, else across it
// @const   b_along_k: bool
// @const   whole_k: bool // K is a multiple of four
// @grid invocations p.tiles_m * p.tiles_n * p.batch * p.splits

import package::matmul::product::{Params, acc_t, epilogue};

@if(rows_1) const rows = 1u;
@elif(rows_4) const rows = 4u;
@else const rows = 8u;

@if(columns_1) const columns = 1u;
@else const columns = 4u;

// Of a row of a strip.
@if(columns_1) alias sum_t = f32;
@else alias sum_t = vec4<f32>;

// Four of K of a strip's columns: [k], or [k][column].
@if(columns_1) alias block_b_t = vec4<f32>;
@else alias block_b_t = mat4x4<f32>;

// Rows and columns beyond the edges repeat the last one: they are read, but never stored. Beyond K the last elements are read,
// and count as zeros. A branch around each load would take longer to compile than the load.
fn element_of_a(base: u32, m: u32, k: u32, k_end: u32) -> f32 {
  @if(!a_is_bits128) {
    let row = p.a_at + base + min(m, p.m - 1u) * p.a_row;
    @if(whole_k) return load_a(row + k * p.a_column);
    @else return select(load_a(row + min(k, k_end - 1u) * p.a_column), 0.0, k >= k_end);
  }
  @else return 0.0;
}

fn element_of_b(base: u32, n: u32, k: u32, k_end: u32) -> f32 {
  @if(!b_is_bits128) {
    let column = p.b_at + base + min(n, p.n - 1u) * p.b_column;
    @if(whole_k) return load_b(column + k * p.b_row);
    @else return select(load_b(column + min(k, k_end - 1u) * p.b_row), 0.0, k >= k_end);
  }
  @else return 0.0;
}

// Four of K of a row of A.
fn row_of_a(base: u32, m: u32, k: u32, k_end: u32) -> vec4<f32> {
  @if(a_is_bits128) return bitcast<vec4<f32>>(load_a(p.a_at + (base + min(m, p.m - 1u) * p.a_row + k) / 4u));
  @else {
    return vec4<f32>(element_of_a(base, m, k, k_end), element_of_a(base, m, k + 1u, k_end),
                     element_of_a(base, m, k + 2u, k_end), element_of_a(base, m, k + 3u, k_end));
  }
}

// Four rows of A at one place of K.
@if(a_is_bits128)
fn column_of_a(base: u32, m: u32, k: u32, k_end: u32) -> vec4<f32> {
  let row = base + min(m, p.m - 4u);
  @if(whole_k) return bitcast<vec4<f32>>(load_a(p.a_at + (row + k * p.a_column) / 4u));
  @else {
    let found = bitcast<vec4<f32>>(load_a(p.a_at + (row + min(k, k_end - 1u) * p.a_column) / 4u));
    return select(found, vec4<f32>(), k >= k_end);
  }
}

// [row][k]
fn block_of_a(base: u32, m: u32, k: u32, k_end: u32) -> mat4x4<f32> {
  @if(a_is_bits128 && !a_along_k) {
    return transpose(mat4x4<f32>(column_of_a(base, m, k, k_end), column_of_a(base, m, k + 1u, k_end),
                                 column_of_a(base, m, k + 2u, k_end), column_of_a(base, m, k + 3u, k_end)));
  }
  @else {
    return mat4x4<f32>(row_of_a(base, m, k, k_end), row_of_a(base, m + 1u, k, k_end), row_of_a(base, m + 2u, k, k_end),
                       row_of_a(base, m + 3u, k, k_end));
  }
}

// Four of K of a column of B.
fn column_of_b(base: u32, n: u32, k: u32, k_end: u32) -> vec4<f32> {
  @if(b_is_bits128) return bitcast<vec4<f32>>(load_b(p.b_at + (base + min(n, p.n - 1u) * p.b_column + k) / 4u));
  @else {
    return vec4<f32>(element_of_b(base, n, k, k_end), element_of_b(base, n, k + 1u, k_end),
                     element_of_b(base, n, k + 2u, k_end), element_of_b(base, n, k + 3u, k_end));
  }
}

// Four columns of B at one place of K.
@if(b_is_bits128)
fn row_of_b(base: u32, n: u32, k: u32, k_end: u32) -> vec4<f32> {
  let column = base + min(n, p.n - 4u);
  @if(whole_k) return bitcast<vec4<f32>>(load_b(p.b_at + (column + k * p.b_row) / 4u));
  @else {
    let found = bitcast<vec4<f32>>(load_b(p.b_at + (column + min(k, k_end - 1u) * p.b_row) / 4u));
    return select(found, vec4<f32>(), k >= k_end);
  }
}

fn block_of_b(base: u32, n: u32, k: u32, k_end: u32) -> block_b_t {
  @if(columns_1) return column_of_b(base, n, k, k_end);
  @elif(b_is_bits128 && !b_along_k) {
    return mat4x4<f32>(row_of_b(base, n, k, k_end), row_of_b(base, n, k + 1u, k_end), row_of_b(base, n, k + 2u, k_end),
                       row_of_b(base, n, k + 3u, k_end));
  }
  @else {
    return transpose(mat4x4<f32>(column_of_b(base, n, k, k_end), column_of_b(base, n + 1u, k, k_end),
                                 column_of_b(base, n + 2u, k, k_end), column_of_b(base, n + 3u, k, k_end)));
  }
}

fn add_products(a: vec4<f32>, b: block_b_t, sum: sum_t) -> sum_t {
  return fma(sum_t(a.w), b[3], fma(sum_t(a.z), b[2], fma(sum_t(a.y), b[1], fma(sum_t(a.x), b[0], sum))));
}

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  // Neighbours have neighbouring columns, so that they read the same rows of A.
  let id = (wid.y * groups.x + wid.x) * 32u + t;
  let n0 = id % p.tiles_n * columns;
  let m0 = id / p.tiles_n % p.tiles_m * rows;
  let c_batch = id / p.tiles_n / p.tiles_m; // piece * batches + batch
  let batch = c_batch % p.batch;
  let piece = c_batch / p.batch;
  if (piece >= p.splits) {
    return;
  }
  let k_end = min((piece + 1u) * p.k_piece, p.k);
  let a_base = batch * p.a_batch;
  let b_base = batch * p.b_batch;
  // Each has a name, because arrays of sums would lie in memory.
  var sum0 = sum_t();
  @repeat(i, 1..4) @if(!rows_1) var sum$i = sum_t();
  @repeat(i, 4..8) @if(rows_8) var sum$i = sum_t();
  for (var k = piece * p.k_piece; k < k_end; k += 4u) {
    let b = block_of_b(b_base, n0, k, k_end);
    @if(rows_1) sum0 = add_products(row_of_a(a_base, m0, k, k_end), b, sum0);
    @else {
      let a = block_of_a(a_base, m0, k, k_end);
      @repeat(i, 4) sum$i = add_products(a[$i], b, sum$i);
    }
    @if(rows_8) {
      let low = block_of_a(a_base, m0 + 4u, k, k_end);
      sum4 = add_products(low[0], b, sum4);
      sum5 = add_products(low[1], b, sum5);
      sum6 = add_products(low[2], b, sum6);
      sum7 = add_products(low[3], b, sum7);
    }
  }
  @if(rows_1) var sums = array<sum_t, rows>(sum0);
  @elif(rows_4) var sums = array<sum_t, rows>(sum0, sum1, sum2, sum3);
  @else var sums = array<sum_t, rows>(sum0, sum1, sum2, sum3, sum4, sum5, sum6, sum7);
  // One epilogue in the text, which may be long.
  for (var i = 0u; i < rows * columns; i++) {
    let m = m0 + i / columns;
    let n = n0 + i % columns;
    if (m < p.m && n < p.n) {
      @if(columns_1) let sum = sums[i];
      @else let sum = sums[i / columns][i % columns];
      store_c(p.c_at + c_batch * p.c_batch + m * p.c_row + n * p.c_column, epilogue(sum, batch, m, n));
    }
  }
}
