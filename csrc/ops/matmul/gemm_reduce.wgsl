// The second half of a product whose K was cut into pieces: adds the pieces' sums, which lie in `a`
// as [piece][batch][m][n], and finishes as gemm.wgsl would.

@group(0) @binding(31) var<uniform> p: GemmParams;

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<u32>;
@group(0) @binding(1) var<storage, read> b1: array<u32>;
@group(0) @binding(2) var<storage, read> b2: array<u32>;
alias a_t = f32;
alias c_t = f32;
alias d_t = f32;
fn store_c(i: u32, v: c_t) { b0[i] = bitcast<u32>(v); }
fn load_a(i: u32) -> a_t { return bitcast<f32>(b1[i]); }
fn load_d(i: u32) -> d_t { return bitcast<f32>(b2[i]); }
// @end

// @hook KIND
alias acc_t = f32;
fn acc_add(a: acc_t, b: acc_t) -> acc_t { return a + b; }
fn acc_mul(a: acc_t, b: acc_t) -> acc_t { return a * b; }
fn acc_scalar(words: vec2<u32>) -> acc_t { return bitcast<f32>(words.x); }
// @end

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
  let i = (wid.y * groups.x + wid.x) * 64u + t;
  let piece = p.batch * p.m * p.n;
  if (i >= piece) {
    return;
  }
  var sum = load_a(p.a_offset + i);
  for (var s = 1u; s < p.splits; s++) {
    sum = acc_add(sum, load_a(p.a_offset + s * piece + i));
  }
  let n = i % p.n;
  let m = i / p.n % p.m;
  let batch = i / p.n / p.m;
  store_c(p.c_offset + batch * p.c_batch + m * p.c_row + c_column(n), epilogue(sum, batch, m, n));
}
