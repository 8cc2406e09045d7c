// Inclusive scans of rows of `length` elements, `inner` apart. `lanes` invocations walk a row in tiles of four
// elements each. A long row is cut into segments for several workgroups: a first dispatch finds the segments' totals,
// the second scans each segment from the total of those before it.

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<u32>;
@group(0) @binding(1) var<storage, read> b1: array<u32>;
alias y_t = f32;
alias x_t = f32;
fn store_y(i: u32, v: y_t) { b0[i] = bitcast<u32>(v); }
fn load_x(i: u32) -> x_t { return bitcast<f32>(b1[i]); }
// @end

struct Params {
  rows: u32,
  length: u32,
  inner: u32,       // `inner` rows lie interleaved
  segments: u32,    // per row
  segment: u32,     // elements
  lanes_log2: u32,
  lanes_first: u32, // neighbouring invocations share a row (else take neighbouring rows)
  y_at: u32,
  z_at: u32,
  x_at: u32,
}
@group(0) @binding(31) var<uniform> p: Params;

// @hook scan
alias acc_t = f32;
fn identity() -> acc_t { return 0.0; }
fn lift(x: x_t, i: u32) -> acc_t { return x; }
fn combine(a: acc_t, b: acc_t) -> acc_t { return a + b; }
// @end

// @hook totals
// Totals of segments: read by the second dispatch, written by the first, which writes no results.
fn load_total(i: u32) -> acc_t { return identity(); }
fn store_total(i: u32, a: acc_t) {}
// @end

// @hook emit
fn emit(at: u32, a: acc_t) { store_y(p.y_at + at, a); }
// @end

var<workgroup> shared_accs: array<acc_t, 256>;

// Inclusive scan over the lanes of a row; the result is also left in shared_accs.
fn scan_lanes(a: acc_t, slot: u32, stride: u32, lane: u32, lanes: u32) -> acc_t {
  var total = a;
  shared_accs[slot] = total;
  for (var step = 1u; step < lanes; step <<= 1u) {
    workgroupBarrier();
    if (lane >= step) {
      total = combine(shared_accs[slot - step * stride], total);
    }
    workgroupBarrier();
    shared_accs[slot] = total;
  }
  workgroupBarrier();
  return total;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let workgroup = wid.y * workgroups.x + wid.x;
  let segment = workgroup % p.segments;
  let lanes = 1u << p.lanes_log2;
  let per_workgroup = 256u >> p.lanes_log2;
  let lanes_first = p.lanes_first != 0u;
  let lane = select(lid / per_workgroup, lid & (lanes - 1u), lanes_first);
  let place = select(lid & (per_workgroup - 1u), lid >> p.lanes_log2, lanes_first);
  let slot = lane * per_workgroup + place;
  let last_slot = (lanes - 1u) * per_workgroup + place;
  let row = (workgroup / p.segments) * per_workgroup + place;
  let in_range = row < p.rows;
  let base = row / p.inner * p.inner * p.length + row % p.inner;
  let end = min((segment + 1u) * p.segment, p.length);

  // What stands before this segment: each lane combines a run of totals.
  var carry = identity();
  if (segment > 0u) {
    let each = (segment + lanes - 1u) / lanes;
    var before = identity();
    if (in_range) {
      for (var s = lane * each; s < min((lane + 1u) * each, segment); s++) {
        before = combine(before, load_total(row * p.segments + s));
      }
    }
    before = scan_lanes(before, slot, per_workgroup, lane, lanes);
    carry = shared_accs[last_slot];
    workgroupBarrier();
  }

  for (var tile = segment * p.segment; tile < end; tile += lanes * 4u) {
    let first = tile + lane * 4u;
    var accs: array<acc_t, 4>;
    var total = identity();
    for (var k = 0u; k < 4u; k++) {
      if (in_range && first + k < end) {
        total = combine(total, lift(load_x(p.x_at + base + (first + k) * p.inner), first + k));
      }
      accs[k] = total;
    }
    total = scan_lanes(total, slot, per_workgroup, lane, lanes);
    var before = carry;
    if (lane > 0u) {
      before = combine(carry, shared_accs[slot - per_workgroup]);
    }
    carry = combine(carry, shared_accs[last_slot]);
    workgroupBarrier();
    for (var k = 0u; k < 4u; k++) {
      if (in_range && first + k < end) {
        emit(base + (first + k) * p.inner, combine(before, accs[k]));
      }
    }
  }
  if (lane == 0u && in_range) {
    store_total(row * p.segments + segment, carry);
  }
}
