// gemm.wgsl for one column: C's rows are dot products of A's rows with the column B. p.lanes invocations share a row.
// If the elements of a row are contiguous (a_along_k), neighbouring invocations share a row; else they take
// neighbouring rows.
//
// @operand c: out number akin a
// @operand a: in number
// @operand b: in like a
// @operand d: in like a optional

import package::matmul::product::{Params, acc_t, acc_add, acc_mul, epilogue};

const threads = 128u;

var<workgroup> sums: array<acc_t, threads>;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let id = wid.y * groups.x + wid.x;
  let c_batch = id / p.tiles_m; // piece * batches + batch
  let batch = c_batch % p.batch;
  let piece = c_batch / p.batch;
  if (piece >= p.splits) {
    return;
  }
  let lanes = p.lanes;
  let rows = threads / lanes;
  let along_k = p.a_along_k == 1u;
  let lane = select(t / rows, t % lanes, along_k);
  let m = id % p.tiles_m * rows + select(t % rows, t / lanes, along_k);
  let k_end = min((piece + 1u) * p.k_piece, p.k);

  @repeat(i, 4) var sum$i = acc_t();
  if (m < p.m) {
    let a = p.a_at + batch * p.a_batch + m * p.a_row;
    let b = p.b_at + batch * p.b_batch;
    var k = piece * p.k_piece + lane;
    // Four independent sums, so that four loads can be in flight at once.
    for (; k + 3u * lanes < k_end; k += 4u * lanes) {
      let k1 = k + lanes;
      let k2 = k + 2u * lanes;
      let k3 = k + 3u * lanes;
      sum0 = acc_add(sum0, acc_mul(load_a(a + k * p.a_column), load_b(b + k * p.b_row)));
      @repeat(i, 1..4) sum$i = acc_add(sum$i, acc_mul(load_a(a + k$i * p.a_column), load_b(b + k$i * p.b_row)));
    }
    for (; k < k_end; k += lanes) {
      sum0 = acc_add(sum0, acc_mul(load_a(a + k * p.a_column), load_b(b + k * p.b_row)));
    }
  }
  let distance = select(rows, 1u, along_k); // between lanes of a row
  sums[t] = acc_add(acc_add(sum0, sum1), acc_add(sum2, sum3));
  for (var half = lanes / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane < half) {
      sums[t] = acc_add(sums[t], sums[t + half * distance]);
    }
  }
  if (lane == 0u && m < p.m) {
    store_c(p.c_at + c_batch * p.c_batch + m * p.c_row, epilogue(sums[t], batch, m, 0u));
  }
}
