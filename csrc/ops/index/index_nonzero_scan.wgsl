// Turns the counts of blocks into the number of elements before each block, and appends the total. One workgroup
// walks over all of them.
//
// @operand counts: out {bits32}

struct Params {
  count: u32, // blocks
}

var<workgroup> sums: array<u32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) local: u32) {
  var before = 0u;
  for (var base = 0u; base < p.count; base += 256u) {
    let i = base + local;
    var own = 0u;
    if (i < p.count) {
      own = load_counts(p.counts_at + i);
    }
    sums[local] = own;
    for (var step = 1u; step < 256u; step *= 2u) {
      workgroupBarrier();
      var other = 0u;
      if (local >= step) {
        other = sums[local - step];
      }
      workgroupBarrier();
      sums[local] += other;
    }
    workgroupBarrier();
    if (i < p.count) {
      store_counts(p.counts_at + i, before + sums[local] - own);
    }
    before += sums[255];
    workgroupBarrier();
  }
  if (local == 0u) {
    store_counts(p.counts_at + p.count, before);
  }
}
