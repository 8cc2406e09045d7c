// Sorts blocks of up to 1024 elements in workgroup memory (a bitonic network). Elements are compared
// by a key that orders their values (hook `key`), and equal keys by their positions, which makes the
// order stable. Short rows share a workgroup; a long row is several blocks, merged by sort_merge or,
// where only the first `limit` of each block matter, sorted again.

struct Params {
  segments: u32, // blocks of all rows
  row: u32,      // elements of a row of the source
  blocks: u32,   // of a row
  width: u32,    // elements of a block: a power of two, at most 1024
  limit: u32,    // elements of a block that are written
  out_row: u32,
  descending: u32,
  in_offset: u32,
  in_row: u32,
  values_offset: u32,
  indices_offset: u32,
}

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read_write> b1: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read> b2: array<f32>;
alias in_t = f32;
fn store_values(i: u32, v: f32) { b0[i] = v; }
fn store_indices(i: u32, v: vec2<u32>) { b1[i] = v; }
fn load_in(i: u32) -> f32 { return b2[i]; }
// @end

@group(0) @binding(31) var<uniform> p: Params;

const no_index = 0xffffffffu;

// @hook key
alias key_t = u32;
const last_key = 0xffffffffu;
fn key_less(a: u32, b: u32) -> bool { return a < b; }
fn key_of(v: f32) -> u32 {
  let bits = bitcast<u32>(v);
  return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}
// @end

struct Item {
  key: key_t,
  index: u32,
}

// @hook source
// Element `position` of a row.
fn source(row: u32, position: u32) -> Item {
  let key = key_of(load_in(p.in_offset + row * p.in_row + position));
  return Item(select(key, ~key, p.descending != 0u), position);
}
// @end

// @hook emit
fn emit(row: u32, i: u32, item: Item) {
  if (item.index != no_index) {
    store_values(p.values_offset + i, load_in(p.in_offset + row * p.in_row + item.index));
    store_indices(p.indices_offset + i, vec2<u32>(item.index, 0u));
  }
}
// @end

var<workgroup> keys: array<key_t, 1024>;
var<workgroup> indices: array<u32, 1024>;

fn order(i: u32, j: u32, ascending: bool) {
  let a = keys[i];
  let b = keys[j];
  let wrong = key_less(b, a) || (!key_less(a, b) && indices[j] < indices[i]);
  if (wrong == ascending) {
    keys[i] = b;
    keys[j] = a;
    let index = indices[i];
    indices[i] = indices[j];
    indices[j] = index;
  }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let first = (group.y * groups.x + group.x) * (1024u / p.width);
  for (var e = local; e < 1024u; e += 256u) {
    let segment = first + e / p.width;
    let position = segment % p.blocks * p.width + e % p.width;
    var item = Item(last_key, no_index);
    if (segment < p.segments && position < p.row) {
      item = source(segment / p.blocks, position);
    }
    keys[e] = item.key;
    indices[e] = item.index;
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
      emit(row, row * p.out_row + place, Item(keys[e], indices[e]));
    }
  }
}
