// gemm.wgsl without tiles, an invocation for each element of C: for so few rows or columns that a
// tile would be mostly empty, such as those of depthwise convolutions. The hooks are the same.

@group(0) @binding(31) var<uniform> p: GemmParams;

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<u32>;
@group(0) @binding(1) var<storage, read> b1: array<u32>;
@group(0) @binding(2) var<storage, read> b2: array<u32>;
@group(0) @binding(3) var<storage, read> b3: array<u32>;
alias a_t = f32;
alias b_t = f32;
alias c_t = f32;
alias d_t = f32;
fn store_c(i: u32, v: c_t) { b0[i] = bitcast<u32>(v); }
fn load_a(i: u32) -> a_t { return bitcast<f32>(b1[i]); }
fn load_b(i: u32) -> b_t { return bitcast<f32>(b2[i]); }
fn load_d(i: u32) -> d_t { return bitcast<f32>(b3[i]); }
// @end

// @hook KIND
alias acc_t = f32;
fn acc_add(a: acc_t, b: acc_t) -> acc_t { return a + b; }
fn acc_mul(a: acc_t, b: acc_t) -> acc_t { return a * b; }
fn acc_scalar(words: vec2<u32>) -> acc_t { return bitcast<f32>(words.x); }
// @end

// Where A's column k lies, relative to its row.
// @hook A_COLUMN
fn a_column(k: u32) -> u32 { return k * p.a_column; }
// @end

// Element (k, n) of B. What depends on k or n alone is computed once for four elements.
// @hook B_ELEMENT
alias b_row_t = u32;
alias b_column_t = u32;
fn b_row(k: u32) -> b_row_t { return k * p.b_row; }
fn b_column(batch: u32, n: u32) -> b_column_t {
  return p.b_offset + batch * p.b_batch + n * p.b_column;
}
fn b_element(row: b_row_t, column: b_column_t) -> b_t { return load_b(row + column); }
// Whether B has such an element. A missing element is loaded as zero and must add nothing to the sum.
fn b_exists(row: b_row_t, column: b_column_t) -> bool { return true; }
// @end

// Where C's column n lies, relative to its row.
// @hook C_COLUMN
fn c_column(n: u32) -> u32 { return n * p.c_column; }
// @end

// @hook EPILOGUE
fn epilogue(acc: acc_t, batch: u32, m: u32, n: u32) -> acc_t {
  let d = load_d(p.d_offset + batch * p.d_batch + m * p.d_row + n * p.d_column);
  return acc_add(acc_mul(acc_scalar(p.alpha), acc), acc_mul(acc_scalar(p.beta), d));
}
// @end

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let id = (wid.y * groups.x + wid.x) * 64u + t;
  let n = id % p.n;
  let m = id / p.n % p.m;
  let c_batch = id / p.n / p.m; // piece * batches + batch
  let batch = c_batch % p.batch;
  let piece = c_batch / p.batch;
  if (piece >= p.splits) {
    return;
  }
  let k_end = min((piece + 1u) * p.k_piece, p.k);
  let a_row = p.a_offset + batch * p.a_batch + m * p.a_row;
  let column = b_column(batch, n);
  var sum = acc_t();
  for (var k = piece * p.k_piece; k < k_end; k++) {
    let row = b_row(k);
    if (b_exists(row, column)) {
      sum = acc_add(sum, acc_mul(load_a(a_row + a_column(k)), b_element(row, column)));
    }
  }
  store_c(p.c_offset + c_batch * p.c_batch + m * p.c_row + c_column(n), epilogue(sum, batch, m, n));
}
