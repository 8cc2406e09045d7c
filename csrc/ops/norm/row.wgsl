// Rows whose elements several invocations of a workgroup share: `lanes` of them (a power of two) combine a value each. A
// kernel that imports this declares const row_slots, the invocations of its workgroup. Invocation `lane` of a row keeps its
// value in `slot`; neighbouring lanes of a row are `stride` slots apart. The first kHeads lanes combine their share of the
// values, then each lane combines what these have: a tree of two levels, because a barrier costs more than the reads. A call
// may follow another without a barrier: each array is read before the barrier behind which it is next written.
//
// @const alone: bool // each row has one lane, and invocations do not meet

const kHeads = 16u;

@if(!alone) var<workgroup> row_values: array<f32, row_slots>;
@if(!alone) var<workgroup> row_heads: array<f32, row_slots>;
@if(!alone) var<workgroup> row_pairs: array<vec2<f32>, row_slots>;
@if(!alone) var<workgroup> row_pair_heads: array<vec2<f32>, row_slots>;

fn row_max(v: f32, slot: u32, stride: u32, lane: u32, lanes: u32) -> f32 {
  @if(alone) return v;
  @else {
    let first = slot - lane * stride;
    row_values[slot] = v;
    workgroupBarrier();
    var total = v;
    if (lane < kHeads) {
      for (var k = lane + kHeads; k < lanes; k += kHeads) {
        total = max_f(total, row_values[first + k * stride]);
      }
      row_heads[slot] = total;
    }
    workgroupBarrier();
    total = row_heads[first];
    for (var k = 1u; k < min(kHeads, lanes); k++) {
      total = max_f(total, row_heads[first + k * stride]);
    }
    return total;
  }
}

fn row_sum(v: f32, slot: u32, stride: u32, lane: u32, lanes: u32) -> f32 {
  @if(alone) return v;
  @else {
    let first = slot - lane * stride;
    row_values[slot] = v;
    workgroupBarrier();
    var total = v;
    if (lane < kHeads) {
      for (var k = lane + kHeads; k < lanes; k += kHeads) {
        total += row_values[first + k * stride];
      }
      row_heads[slot] = total;
    }
    workgroupBarrier();
    total = row_heads[first];
    for (var k = 1u; k < min(kHeads, lanes); k++) {
      total += row_heads[first + k * stride];
    }
    return total;
  }
}

fn row_sum_of_pairs(v: vec2<f32>, slot: u32, lane: u32, lanes: u32) -> vec2<f32> {
  @if(alone) return v;
  @else {
    let first = slot - lane;
    row_pairs[slot] = v;
    workgroupBarrier();
    var total = v;
    if (lane < kHeads) {
      for (var k = lane + kHeads; k < lanes; k += kHeads) {
        total += row_pairs[first + k];
      }
      row_pair_heads[slot] = total;
    }
    workgroupBarrier();
    total = row_pair_heads[first];
    for (var k = 1u; k < min(kHeads, lanes); k++) {
      total += row_pair_heads[first + k];
    }
    return total;
  }
}
