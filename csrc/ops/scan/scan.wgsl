// Inclusive scans of rows of `length` elements, `inner` apart. `lanes` invocations walk a row in tiles of four
// elements each. A long row is cut into segments for several workgroups: a first dispatch finds the segments' totals,
// the second scans each segment from the total of those before it.
//
// @operand y: out any optional // the results
// @operand z: out {i64} optional // indices of cummax and cummin
// @operand x: in any
// @operand totals: in {f32, i64, i32, c64} optional // of the segments, for the second dispatch
// @operand total_indices: in {i32} optional
// @operand new_totals: out {f32, i64, i32, c64} optional // of the first dispatch
// @operand new_total_indices: out {i32} optional
// @const   table_row: u32 in 0..15 // of rows.yaml
// @const   indexed: bool // accumulators have an index
// @require has_y != has_new_totals
// @require !has_totals || has_y
// @require has_z == (has_y && indexed)
// @require has_total_indices == (has_totals && indexed)
// @require has_new_total_indices == (has_new_totals && indexed)

struct Params {
  rows: u32,
  length: u32,
  inner: u32,       // `inner` rows lie interleaved
  segments: u32,    // per row
  segment: u32,     // elements
  lanes_log2: u32,
  lanes_first: u32, // neighbouring invocations share a row (else take neighbouring rows)
}

@if(indexed && x_is_float) alias acc_t = Indexed_f;
@elif(indexed && x_is_int) alias acc_t = Indexed_i;
@elif(indexed) alias acc_t = Indexed_l;
@else alias acc_t = x_t;

fn lift(x: x_t, i: u32) -> acc_t {
  @if(indexed) return acc_t(x, i);
  @else return x;
}

fn identity() -> acc_t {
  return (
// @region identity: an expression
  );
}

// `a` comes before `b` in the row.
fn combine(a: acc_t, b: acc_t) -> acc_t {
  return (
// @region combine: an expression of a and b
  );
}

fn load_total(i: u32) -> acc_t {
  @if(has_totals && indexed) {
    return acc_t(load_totals(p.totals_at + i), bitcast<u32>(load_total_indices(p.total_indices_at + i)));
  }
  @elif(has_totals) return load_totals(p.totals_at + i);
  @else return identity(); // without totals, a segment starts from the identity
}

fn store_total(i: u32, a: acc_t) {
  @if(has_new_totals && indexed) {
    store_new_totals(p.new_totals_at + i, a.value);
    store_new_total_indices(p.new_total_indices_at + i, bitcast<i32>(a.index));
  }
  @elif(has_new_totals) store_new_totals(p.new_totals_at + i, a);
}

fn emit(i: u32, a: acc_t) {
  @if(has_y && indexed) {
    store_y(p.y_at + i, a.value);
    store_z(p.z_at + i, l_from_index(a.index));
  }
  @elif(has_y) store_y(p.y_at + i, a);
}

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

  // The combined totals of the segments before this one. Each lane combines a run of them.
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
    var accs = array<acc_t, 4>();
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
