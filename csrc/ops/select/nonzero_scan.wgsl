// Turns the counts of blocks into the number of elements before each block, and appends the total. One workgroup
// walks over all of them.
//
// @operand counts: out {bits32}
// @grid groups 1

import package::select::prefix::{prefix_sum, sums};

struct Params {
  count: u32, // blocks
}

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) local: u32) {
  var before = 0u;
  for (var base = 0u; base < p.count; base += 256u) {
    let i = base + local;
    var own = 0u;
    if (i < p.count) {
      own = load_counts(p.counts_at + i);
    }
    let sum = prefix_sum(own, local);
    if (i < p.count) {
      store_counts(p.counts_at + i, before + sum - own);
    }
    workgroupBarrier();
    before += sums[255];
  }
  if (local == 0u) {
    store_counts(p.counts_at + p.count, before);
  }
}
