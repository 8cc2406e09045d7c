var<workgroup> sums: array<u32, 256>;

// The sum of `own` over this invocation and those before it, in a workgroup of 256.
fn prefix_sum(own: u32, local: u32) -> u32 {
  workgroupBarrier();
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
  return sums[local];
}
