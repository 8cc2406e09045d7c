// The second half of a product whose K was cut into pieces: adds the pieces' sums, which lie in `a` as
// [piece][batch][m][n], and finishes as gemm.wgsl would.
//
// @operand c: out number akin a
// @operand a: in {f32, i32, i64, c64}
// @operand d: in number akin a optional
// @grid invocations p.m * p.n * p.batch

import package::matmul::product::{Params, acc_t, acc_add, epilogue};

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (wid.y * groups.x + wid.x) * 64u + t;
  let piece = p.batch * p.m * p.n;
  if (i >= piece) {
    return;
  }
  var sum = load_a(p.a_at + i);
  for (var s = 1u; s < p.splits; s++) {
    sum = acc_add(sum, load_a(p.a_at + s * piece + i));
  }
  let n = i % p.n;
  let m = i / p.n % p.m;
  let batch = i / p.n / p.m;
  store_c(p.c_at + batch * p.c_batch + m * p.c_row + n * p.c_column, epilogue(sum, batch, m, n));
}
