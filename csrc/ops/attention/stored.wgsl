// Weights and gradients of scores that the kernel of the queries' gradients writes, and from which another kernel makes the
// gradients of keys and values. attention_matrix_queries.wgsl and attention_matrix_stored.wgsl keep them as float16,
// attention_blocks_queries.wgsl and attention_blocks_stored.wgsl as float32, each in an order of its own.
//
// Tiles have `stored_rows` queries and all keys, up to a multiple of `stored_columns`. If `causal`, a tile ends with the keys
// that its last query sees, up to a multiple of both numbers. One of them is a multiple of the other one.
//
// Weights are those that pairs of gradient.wgsl give, before their totals.
//
// A dispatch has a part of the heads of a call.
//
// A kernel that imports this declares the constants stored_rows and stored_columns.

struct Params {
  first_of_call: u32,     // head of queries of all batches
  heads_of_dispatch: u32, // of queries
  groups_of_head: u32,    // of 16 bytes, that are stored
}

const stored_unit = max(stored_rows, stored_columns);
const tiles_of_unit = stored_unit / stored_rows;

fn all_stored_keys() -> u32 {
  return (p.keys + stored_columns - 1u) / stored_columns * stored_columns;
}

// Keys of a tile.
fn stored_keys(tile: u32) -> u32 {
  @if(causal) return min(all_stored_keys(), (tile / tiles_of_unit + 1u) * stored_unit);
  @else return all_stored_keys();
}

// The sum of the keys of the tiles before.
fn stored_before(tile: u32) -> u32 {
  let all = all_stored_keys();
  var before = tile * all;
  @if(causal) {
    // Tiles come in groups with the same keys. Each group has `stored_unit` keys more than the one before it, until it has all.
    let groups = tile / tiles_of_unit;
    let growing = min(groups, all / stored_unit);
    before = (growing * (growing + 1u) / 2u * stored_unit + (groups - growing) * all) * tiles_of_unit;
    before += tile % tiles_of_unit * stored_keys(tile);
  }
  return before;
}

// Which head of a call, of all batches, and which tile of its queries a workgroup of the queries' gradients has. With `stored` the
// longest rows of all heads come first, because a dispatch may have few workgroups.
fn head_of_call(id: u32) -> u32 {
  @if(has_stored) return p.first_of_call + id % p.heads_of_dispatch;
  @else return id / p.tiles;
}

fn tile_of_queries(id: u32) -> u32 {
  @if(has_stored) return p.tiles - 1u - id / p.heads_of_dispatch;
  @else return p.tiles - 1u - id % p.tiles;
}
