// Sorts blocks of up to 1024 elements in workgroup memory (a bitonic network). Elements are compared by a key that
// orders their values, and equal keys by their positions, which makes the order stable. Short rows share a workgroup; a
// long row is several blocks, merged by sort_merge or, where only the first `limit` of each block matter, sorted again.
//
// The elements come from the rows of `in`, or are keys and positions of an earlier pass. Keys of int64 take two words.
//
// @operand out_keys: out {bits32} optional // for another pass
// @operand out_indices: out {bits32} optional
// @operand values: out bits optional // the results
// @operand positions: out {i64} optional
// @operand keys: in {bits32} optional // of an earlier pass
// @operand indices: in {bits32} optional
// @operand in: in {float, integer, bool}
// @operand raw: in like values optional // `in` for results: a key does not tell which zero or NaN an element was
// @require has_out_keys == has_out_indices
// @require has_values == has_positions
// @require has_values == has_raw
// @require has_values != has_out_keys
// @require has_keys == has_indices

import package::sort::sort_key::{key_from_f, key_from_i, key_from_l};

struct Params {
  segments: u32,   // blocks of all rows
  row: u32,        // elements of a row of the source
  blocks: u32,     // of a row
  width: u32,      // elements of a block: a power of two, at most 1024
  limit: u32,      // elements of a block that are written
  out_row: u32,
  descending: u32,
  in_row: u32,
}

const no_position = 0xffffffffu;

@if(in_is_long) alias key_t = vec2<u32>;
@else alias key_t = u32;

fn key_of(v: in_t) -> key_t {
  @if(in_is_float) return key_from_f(v);
  @elif(in_is_int) return key_from_i(v);
  @else return key_from_l(v);
}

fn key_less(a: key_t, b: key_t) -> bool {
  @if(in_is_long) return lt_ul(a, b);
  @else return a < b;
}

struct Item {
  key: key_t,
  index: u32, // position in the row of `in`
}

// Element `position` of a row of the source.
fn item_at(row: u32, position: u32) -> Item {
  @if(has_keys) {
    let i = row * p.row + position;
    let index = load_indices(p.indices_at + i);
    @if(in_is_long) {
      let at = p.keys_at + 2u * i;
      return Item(vec2<u32>(load_keys(at), load_keys(at + 1u)), index);
    }
    @else return Item(load_keys(p.keys_at + i), index);
  }
  @else {
    let key = key_of(load_in(p.in_at + row * p.in_row + position));
    return Item(select(key, ~key, p.descending != 0u), position);
  }
}

// Writes an element of a row as element i of the output.
fn emit(row: u32, i: u32, item: Item) {
  @if(has_values) {
    if (item.index != no_position) {
      store_values(p.values_at + i, load_raw(p.raw_at + row * p.in_row + item.index));
      store_positions(p.positions_at + i, vec2<u32>(item.index, 0u));
    }
  }
  @else {
    store_out_indices(p.out_indices_at + i, item.index);
    @if(in_is_long) {
      store_out_keys(p.out_keys_at + 2u * i, item.key.x);
      store_out_keys(p.out_keys_at + 2u * i + 1u, item.key.y);
    }
    @else store_out_keys(p.out_keys_at + i, item.key);
  }
}

var<workgroup> block_keys: array<key_t, 1024>;
var<workgroup> block_indices: array<u32, 1024>;

fn order(i: u32, j: u32, ascending: bool) {
  let a = block_keys[i];
  let b = block_keys[j];
  let wrong = key_less(b, a) || (!key_less(a, b) && block_indices[j] < block_indices[i]);
  if (wrong == ascending) {
    block_keys[i] = b;
    block_keys[j] = a;
    let index = block_indices[i];
    block_indices[i] = block_indices[j];
    block_indices[j] = index;
  }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let first = (group.y * groups.x + group.x) * (1024u / p.width);
  for (var e = local; e < 1024u; e += 256u) {
    let segment = first + e / p.width;
    let position = segment % p.blocks * p.width + e % p.width;
    var item = Item(~key_t(), no_position); // sorts after every element
    if (segment < p.segments && position < p.row) {
      item = item_at(segment / p.blocks, position);
    }
    block_keys[e] = item.key;
    block_indices[e] = item.index;
  }
  for (var size = 2u; size <= p.width; size *= 2u) {
    for (var step = size / 2u; step > 0u; step /= 2u) {
      workgroupBarrier();
      for (var t = local; t < 512u; t += 256u) {
        let i = 2u * t - (t & (step - 1u));
        order(i, i + step, (i & (p.width - 1u) & size) == 0u);
      }
    }
  }
  workgroupBarrier();
  for (var e = local; e < 1024u; e += 256u) {
    let segment = first + e / p.width;
    let position = e % p.width;
    let place = segment % p.blocks * p.limit + position;
    if (segment < p.segments && position < p.limit && place < p.out_row) {
      let row = segment / p.blocks;
      emit(row, row * p.out_row + place, Item(block_keys[e], block_indices[e]));
    }
  }
}
