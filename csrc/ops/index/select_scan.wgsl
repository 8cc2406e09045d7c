// Turns the counts of blocks into the number of elements before each block, and appends the total.
// One workgroup walks over all of them.

struct Params {
  count: u32,
}

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<u32>;
fn load_out(i: u32) -> u32 { return b0[i]; }
fn store_out(i: u32, v: u32) { b0[i] = v; }
// @end

@group(0) @binding(31) var<uniform> p: Params;

var<workgroup> sums: array<u32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) local: u32) {
  var before = 0u;
  for (var base = 0u; base < p.count; base += 256u) {
    let i = base + local;
    var own = 0u;
    if (i < p.count) {
      own = load_out(i);
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
      store_out(i, before + sums[local] - own);
    }
    before += sums[255];
    workgroupBarrier();
  }
  if (local == 0u) {
    store_out(p.count, before);
  }
}
