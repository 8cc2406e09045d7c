// Which magnitudes bfloat16 matrices hold, for gemm_bf16.wgsl and gemm_halves.wgsl: a word for each block of 128 rows of A by
// 128 of K, and of 128 columns of B by 128 of K. A workgroup reads one block. gemm_windows.wgsl says what a word holds.
//
// @operand ranges: out of u32 // of A as [batch][block of rows][block of K], then of B likewise
// @grid groups p.a_blocks + p.b_blocks

import package::matmul::gemm_groups::{step_k, load_group_a, load_group_b, base_of_a, base_of_b};
import package::matmul::gemm_blocks::{Params, rows, Block, block_of};
import package::matmul::gemm_windows::{range_word, Seen, nothing_seen, see_group};

var<workgroup> largest: atomic<u32>;

var<workgroup> smallest: atomic<u32>;

var<workgroup> special: atomic<u32>;

fn see_groups(seen: Seen, x0: vec4<u32>, x1: vec4<u32>, x2: vec4<u32>, x3: vec4<u32>) -> Seen {
  return see_group(see_group(see_group(see_group(seen, x0), x1), x2), x3);
}

// All loads before the first use.
@repeat(x, {a, b})
fn see_block_$x(base: u32, first: u32, k: u32, t: u32) -> Seen {
  let x0 = load_group_$x(base, first, k, p.k, t);
  let x1 = load_group_$x(base, first, k, p.k, t + 256u);
  let x2 = load_group_$x(base, first, k + step_k, p.k, t);
  let x3 = load_group_$x(base, first, k + step_k, p.k, t + 256u);
  let x4 = load_group_$x(base, first, k + 2u * step_k, p.k, t);
  let x5 = load_group_$x(base, first, k + 2u * step_k, p.k, t + 256u);
  let x6 = load_group_$x(base, first, k + 3u * step_k, p.k, t);
  let x7 = load_group_$x(base, first, k + 3u * step_k, p.k, t + 256u);
  return see_groups(see_groups(nothing_seen, x0, x1, x2, x3), x4, x5, x6, x7);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let id = wid.y * groups.x + wid.x;
  if (id >= p.a_blocks + p.b_blocks) {
    return;
  }
  if (t == 0u) {
    atomicStore(&largest, 0u);
    atomicStore(&smallest, 0x7fffu);
    atomicStore(&special, 0u);
  }
  workgroupBarrier();
  let here = block_of(id);
  var seen = Seen();
  if (here.is_a) {
    seen = see_block_a(base_of_a(here.batch), here.first, here.k, t);
  } else {
    seen = see_block_b(base_of_b(here.batch), here.first, here.k, t);
  }
  if (seen.largest != 0u) {
    atomicMax(&largest, seen.largest);
    atomicMin(&smallest, seen.smallest + 1u);
  }
  if (seen.any >= 0x7f80u) {
    atomicMax(&special, 1u);
  }
  workgroupBarrier();
  if (t == 0u) {
    store_ranges(id, range_word(atomicLoad(&largest), atomicLoad(&smallest), atomicLoad(&special)));
  }
}
