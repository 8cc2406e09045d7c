// Codes of a tensor's elements: each over its block's greatest magnitude, as the index of the nearest value. An
// invocation writes a word of codes, eight of 4 bits (the first of a byte in its high half) or four of 8 bits. The
// last word may have more of them than the tensor has elements: those of zeros.
//
// @operand codes: out {bits32}
// @operand absmax: in {f32}
// @operand x: in float
// @operand table: in {f32} optional // bytes: the 256 values of codes, ascending
// @const   packing: {nf4, fp4, bytes}
// @require has_table == bytes

import package::blockwise::nearest::{bounds_below, scaled};

struct Params {
  count: u32,
  block: u32,
}

@if(bytes) const kCodes = 4u; // of a word
@if(!bytes) const kCodes = 8u;
@if(bytes) const kValues = 256u;
@if(!bytes) const kValues = 16u;

// In workgroup memory, because the search jumps.
var<workgroup> bounds: array<f32, kValues>;

// Value number `place` in their order.
fn value_at(place: u32) -> f32 {
  @if(bytes) return load_table(p.table_at + place);
  @elif(nf4) return nf4_value_f(place);
  @else return fp4_value_f(fp4_in_order(place));
}

fn nearest(x: f32) -> u32 {
  let place = bounds_below(x, 0u, kValues);
  @if(fp4) return fp4_in_order(place);
  @else return place;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  if (local < kValues) {
    bounds[local] = inf_f();
    if (local + 1u < kValues) {
      bounds[local] = (value_at(local) + value_at(local + 1u)) * 0.5;
    }
  }
  workgroupBarrier();
  let word = (group.y * groups.x + group.x) * 256u + local;
  let start = word * kCodes;
  if (start >= p.count) {
    return;
  }
  let left = min(p.count - start, kCodes);
  var result = 0u;
  for (var j = 0u; j < kCodes; j++) {
    var x = 0.0;
    if (j < left) {
      let i = start + j;
      let block = i / p.block;
      let is_partial = p.count - block * p.block < p.block;
      x = scaled(load_x(p.x_at + i), load_absmax(p.absmax_at + block), is_partial);
    }
    @if(bytes) result |= nearest(x) << (j * 8u);
    @else result |= nearest(x) << ((j ^ 1u) * 4u);
  }
  store_codes(p.codes_at + word, result);
}
