// searchsorted: where a value belongs in its row of sorted boundaries, by bisection.
//
// @operand out: out index
// @operand values: in {float, integer, bool}
// @operand boundaries: in like values
// @operand sorter: in {i64} optional
// @const   nan_is_last: bool // and equal to another NaN; else no boundary is to the right of NaN, nor NaN of a value

import package::sort::sort_key::{key_from_f, key_from_i, key_from_l, nan_key};

struct Params {
  count: u32,      // values
  values_row: u32, // values of one row of boundaries
  boundaries_row: u32,
  shared_row: u32, // all values search the same row
  right: u32,
}

@if(values_is_long) alias key_t = vec2<u32>;
@else alias key_t = u32;

fn key_of(v: values_t) -> key_t {
  @if(values_is_float) return key_from_f(v);
  @elif(values_is_int) return key_from_i(v);
  @else return key_from_l(v);
}

fn key_less(a: key_t, b: key_t) -> bool {
  @if(values_is_long) return lt_ul(a, b);
  @else return a < b;
}

fn boundary(row: u32, position: u32) -> key_t {
  @if(has_sorter) let place = load_sorter(p.sorter_at + row + position).x;
  @else let place = position;
  return key_of(load_boundaries(p.boundaries_at + row + place));
}

// Whether the two compare as neither less nor greater nor equal.
fn unordered(a: key_t, b: key_t) -> bool {
  @if(values_is_float && !nan_is_last) return a == nan_key || b == nan_key;
  @else return false;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let i = (group.y * groups.x + group.x) * 256u + local;
  if (i >= p.count) {
    return;
  }
  let row = select(i / p.values_row * p.boundaries_row, 0u, p.shared_row != 0u);
  let value = key_of(load_values(p.values_at + i));
  var low = 0u;
  var high = p.boundaries_row;
  while (low < high) {
    let probe = low + (high - low) / 2u;
    let there = boundary(row, probe);
    if (unordered(there, value) ||
        select(key_less(there, value), !key_less(value, there), p.right != 0u)) {
      low = probe + 1u;
    } else {
      high = probe;
    }
  }
  @if(out_is_i64) store_out(p.out_at + i, vec2<u32>(low, 0u));
  @else store_out(p.out_at + i, i32(low));
}
