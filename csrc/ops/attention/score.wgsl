// Scores that a program changes before the softmax: score_mod, mask_mod and the block mask of flex_attention. Without them
// (`modified` is false) scores are those of operands.wgsl.
//
// The block mask says of blocks of queries and keys: 0 no query of it sees a key, 1 mask_mod says which ones do, 2 each sees
// all of its keys. Where no tile of scores reaches over a block's edge (`tiled`), tiles of blocks with 0 are left out.
//
// @operand blocks: in of i32 optional // [batch, head, block of queries, block of keys]; the last two are contiguous
// @operand captured_a: in {bits32} optional // the words of tensors that the program reads, of any dtype
// @operand captured_b: in {bits32} optional
// @operand captured_c: in {bits32} optional
// @const   modified: bool
// @const   tiled: bool
// @const   score_text: u32 in 0..255 // the number of the texts that the regions have, modulo 256; number 0 is none
// @const   score_page: u32 in 0..15 // the number divided by 256

struct Params {
  block_batch: u32,      // strides of the block mask
  block_head: u32,
  block_row: u32,
  block_queries: u32,    // of a block
  block_keys: u32,
  captured_counts: vec4<u32>,  // elements from the first to the last of captured_a, captured_b and captured_c
  captured_offsets: vec4<u32>, // elements before the first: those of a word may belong to something else
  captured_strides: array<vec4<u32>, 3>,
  numbers: array<vec4<u32>, 2>, // i32 that the program reads, such as sizes
}

// What the block mask says of the tile at hand.
var<private> tile_state = 1;

fn captured_word(tensor: u32, i: u32) -> u32 {
  @if(has_captured_a) {
    if (tensor == 0u) {
      return load_captured_a(p.captured_a_at + i);
    }
  }
  @if(has_captured_b) {
    if (tensor == 1u) {
      return load_captured_b(p.captured_b_at + i);
    }
  }
  @if(has_captured_c) {
    if (tensor == 2u) {
      return load_captured_c(p.captured_c_at + i);
    }
  }
  return 0u;
}

// Where element i of a captured tensor lies. The program may compute an i that is outside: it gets another element then.
fn captured_at(tensor: u32, i: i32) -> u32 {
  return p.captured_offsets[tensor] + min(bitcast<u32>(i), p.captured_counts[tensor] - 1u);
}

// The bits of an element of 1, 2, 4 and 8 bytes.

fn captured_8(tensor: u32, i: i32) -> u32 {
  let at = captured_at(tensor, i);
  return (captured_word(tensor, at / 4u) >> (at % 4u * 8u)) & 0xffu;
}

fn captured_16(tensor: u32, i: i32) -> u32 {
  let at = captured_at(tensor, i);
  return (captured_word(tensor, at / 2u) >> (at % 2u * 16u)) & 0xffffu;
}

fn captured_32(tensor: u32, i: i32) -> u32 {
  return captured_word(tensor, captured_at(tensor, i));
}

fn captured_64(tensor: u32, i: i32) -> vec2<u32> {
  let at = captured_at(tensor, i);
  return vec2<u32>(captured_word(tensor, 2u * at), captured_word(tensor, 2u * at + 1u));
}

fn score_mod(score: f32, b: i32, h: i32, q: i32, k: i32) -> f32 {
  var result = score;
// @region score = {}: statements that set result, from the parameters
  return result;
}

fn mask_mod(b: i32, h: i32, q: i32, k: i32) -> bool {
  var result = true;
// @region mask = {}: statements that set result, from the parameters
  return result;
}

@if(has_blocks)
fn block_state(batch: u32, head: u32, query: u32, key: u32) -> i32 {
  return load_blocks((p.first_batch + batch) * p.block_batch + (p.first_head + head) * p.block_head +
                     query / p.block_queries * p.block_row + key / p.block_keys);
}

// Whether the block mask lets some query of the tile that starts here see a key. All invocations give the same arguments.
fn sees_tile(batch: u32, head: u32, query: u32, key: u32) -> bool {
  @if(tiled && has_blocks) {
    let state = block_state(batch, head, query, key);
    tile_state = state;
    return state != 0;
  }
  @else return true;
}

// The first key of the first step, at `start` or behind it, that the queries from `query` on see a key of; `end` or more if
// there is none. Steps are smaller than blocks: what lies within a block is a step if the block's start was one.
fn step_from(batch: u32, head: u32, query: u32, start: u32, end: u32) -> u32 {
  var key = start;
  @if(tiled && has_blocks) {
    while (key < end && key % p.block_keys == 0u && block_state(batch, head, query, key) == 0) {
      key += p.block_keys;
    }
  }
  return key;
}

// Finds tile_state for a step of keys. For loops over step_from().
fn enter_step(batch: u32, head: u32, query: u32, key: u32) {
  @if(tiled && has_blocks) {
    if (key % p.block_keys == 0u) {
      tile_state = block_state(batch, head, query, key);
    }
  }
}

// The same for steps of queries, of which some see the keys from `key` on.
fn query_step_from(batch: u32, head: u32, key: u32, start: u32) -> u32 {
  var query = start;
  @if(tiled && has_blocks) {
    while (query < p.queries && query % p.block_queries == 0u && block_state(batch, head, query, key) == 0) {
      query += p.block_queries;
    }
  }
  return query;
}

fn enter_query_step(batch: u32, head: u32, key: u32, query: u32) {
  @if(tiled && has_blocks) {
    if (query % p.block_queries == 0u) {
      tile_state = block_state(batch, head, query, key);
    }
  }
}

// Whether the mask lets a query see a key of a tile whose state is not 2.
@if(modified)
fn is_let_see(batch: u32, head: u32, query: u32, key: u32) -> bool {
  @if(has_blocks && !tiled) {
    let state = block_state(batch, head, query, key);
    if (state != 1) {
      return state == 2;
    }
  }
  return mask_mod(i32(p.first_batch + batch), i32(p.first_head + head), i32(query), i32(key));
}

@if(modified)
fn modified_score(product: f32, batch: u32, head: u32, query: u32, key: u32) -> f32 {
  return score_mod(product * p.scale, i32(p.first_batch + batch), i32(p.first_head + head), i32(query), i32(key));
}

// The score of a query and a key, from their product; -infinity if the query does not see the key.
fn final_score(product: f32, batch: u32, head: u32, query: u32, key: u32) -> f32 {
  @if(modified) {
    let seen = sees(query, key) && (tile_state == 2 || is_let_see(batch, head, query, key));
    return select(-inf_f(), modified_score(product, batch, head, query, key), seen);
  }
  @else return score_of(product, batch, head, query, key);
}

// Four of them. There is one branch for the four, not one for each, so that a compiler can compute them side by side.
fn final_scores(products: vec4<f32>, batch: u32, head: u32, queries: vec4<u32>, keys: vec4<u32>) -> vec4<f32> {
  @if(modified) {
    let scores = vec4<f32>(modified_score(products.x, batch, head, queries.x, keys.x),
                           modified_score(products.y, batch, head, queries.y, keys.y),
                           modified_score(products.z, batch, head, queries.z, keys.z),
                           modified_score(products.w, batch, head, queries.w, keys.w));
    var seen = (queries < vec4<u32>(p.queries)) & (keys < vec4<u32>(p.keys));
    if (tile_state != 2 && any(seen)) {
      seen = vec4<bool>(seen.x && is_let_see(batch, head, queries.x, keys.x),
                        seen.y && is_let_see(batch, head, queries.y, keys.y),
                        seen.z && is_let_see(batch, head, queries.z, keys.z),
                        seen.w && is_let_see(batch, head, queries.w, keys.w));
    }
    return select(vec4<f32>(-inf_f()), scores, seen);
  }
  @else return vec4<f32>(score_of(products.x, batch, head, queries.x, keys.x),
                         score_of(products.y, batch, head, queries.y, keys.y),
                         score_of(products.z, batch, head, queries.z, keys.z),
                         score_of(products.w, batch, head, queries.w, keys.w));
}
