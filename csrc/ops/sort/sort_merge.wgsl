// Merges neighbouring sorted runs of every row: an element's place is its own rank plus the number of elements of the
// other run that come before it, found by bisection. Equal keys keep the order of the runs. Keys of int64 take two
// words (sort_block).
//
// @operand out_keys: out {bits32} optional // for another merge
// @operand out_indices: out {bits32} optional
// @operand values: out bits optional // the results
// @operand positions: out {i64} optional
// @operand keys: in {bits32}
// @operand indices: in {bits32}
// @operand in: in like values optional
// @const   long_keys: bool
// @require has_out_keys == has_out_indices
// @require has_values == has_positions
// @require has_values == has_in
// @require has_values != has_out_keys

struct Params {
  count: u32, // elements of all rows
  row: u32,
  run: u32,
}

@if(long_keys) alias key_t = vec2<u32>;
@else alias key_t = u32;

fn key_at(i: u32) -> key_t {
  @if(long_keys) return vec2<u32>(load_keys(p.keys_at + 2u * i), load_keys(p.keys_at + 2u * i + 1u));
  @else return load_keys(p.keys_at + i);
}

fn key_less(a: key_t, b: key_t) -> bool {
  @if(long_keys) return lt_ul(a, b);
  @else return a < b;
}

fn emit(row_start: u32, i: u32, key: key_t, index: u32) {
  @if(has_values) {
    store_values(p.values_at + i, load_in(p.in_at + row_start + index));
    store_positions(p.positions_at + i, vec2<u32>(index, 0u));
  }
  @else {
    store_out_indices(p.out_indices_at + i, index);
    @if(long_keys) {
      store_out_keys(p.out_keys_at + 2u * i, key.x);
      store_out_keys(p.out_keys_at + 2u * i + 1u, key.y);
    }
    @else store_out_keys(p.out_keys_at + i, key);
  }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let i = (group.y * groups.x + group.x) * 256u + local;
  if (i >= p.count) {
    return;
  }
  let row_start = i / p.row * p.row;
  let position = i - row_start;
  let pair = position / (2u * p.run) * (2u * p.run);
  let middle = min(pair + p.run, p.row);
  let end = min(middle + p.run, p.row);
  let is_left = position < middle;
  let key = key_at(i);
  var low = select(pair, middle, is_left);
  var high = select(middle, end, is_left);
  let other = low;
  while (low < high) {
    let probe = low + (high - low) / 2u;
    let there = key_at(row_start + probe);
    // The left run's elements come before equal ones of the right run.
    if (select(!key_less(key, there), key_less(there, key), is_left)) {
      low = probe + 1u;
    } else {
      high = probe;
    }
  }
  let own = position - select(middle, pair, is_left);
  emit(row_start, row_start + pair + own + low - other, key, load_indices(p.indices_at + i));
}
