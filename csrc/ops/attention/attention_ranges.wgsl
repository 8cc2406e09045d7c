// Which magnitudes the heads of bfloat16 operands hold, for attention_scales.wgsl. A workgroup reads 128 rows: of q and g,
// or of k and v. Of each it writes a word, as gemm_windows.wgsl describes it, into a pair.
//
// With gradients, `pairs` gets the exponents of each row: behind those that attention_delta.wgsl writes, where
// gradient.wgsl has the totals of the queries, in their second word. Byte 0: of the largest magnitude in the row of g, 0
// without one. Byte 1: of the smallest magnitude other than zero in the row of q, 255 without one. Both are biased by 127.
//
// @operand ranges: out {bits64} // [batch][head][tile of queries], then [batch][head of keys][tile of keys]
// @operand pairs: out {bits64} optional
// @operand q: in {bits128}      // groups of eight elements
// @operand k: in {bits128}
// @operand v: in {bits128}
// @operand g: in {bits128} optional
// @require has_g == has_pairs
// @grid groups (p.query_tiles * p.heads + p.key_tiles * p.key_heads) * p.batches

import package::matmul::gemm_windows::{range_word, exponent_of, Seen, nothing_seen, see_group};

struct Params {
  q_strides: vec4<u32>, // of batch, head, row and dimension
  k_strides: vec4<u32>,
  v_strides: vec4<u32>,
  g_strides: vec4<u32>,
  batches: u32,
  heads: u32,
  key_heads: u32,
  queries: u32,
  keys: u32,
  dims: u32,
  value_dims: u32,
  query_tiles: u32,
  key_tiles: u32,
}

const rows = 128u;

fn group_of(operand: u32, at: u32, d: u32, dims: u32) -> vec4<u32> {
  if (d >= dims) {
    return vec4<u32>();
  }
  let i = (at + d) / 8u;
  if (operand == 0u) {
    return load_q(p.q_at + i);
  }
  if (operand == 1u) {
    return load_k(p.k_at + i);
  }
  @if(has_g) {
    if (operand == 3u) {
      return load_g(p.g_at + i);
    }
  }
  return load_v(p.v_at + i);
}

// Half of a row's groups. Four loads come before the first use.
fn see_row(operand: u32, at: u32, dims: u32, half: u32) -> Seen {
  var seen = nothing_seen;
  for (var d = half * 8u; d < dims; d += 64u) {
    let x0 = group_of(operand, at, d, dims);
    let x1 = group_of(operand, at, d + 16u, dims);
    let x2 = group_of(operand, at, d + 32u, dims);
    let x3 = group_of(operand, at, d + 48u, dims);
    seen = see_group(see_group(see_group(see_group(seen, x0), x1), x2), x3);
  }
  return seen;
}

// Of the workgroup's first operand, q or k, and its second, g or v.
var<workgroup> largest: array<atomic<u32>, 2>;

var<workgroup> smallest: array<atomic<u32>, 2>;

var<workgroup> special: array<atomic<u32>, 2>;

fn add(which: u32, seen: Seen) {
  if (seen.largest != 0u) {
    atomicMax(&largest[which], seen.largest);
    atomicMin(&smallest[which], seen.smallest + 1u);
  }
  if (seen.any >= 0x7f80u) {
    atomicMax(&special[which], 1u);
  }
}

fn range_of(which: u32) -> u32 {
  return range_word(atomicLoad(&largest[which]), atomicLoad(&smallest[which]), atomicLoad(&special[which]));
}

// Of the half of a row that an invocation has seen: the largest magnitude of g, and the smallest one of q less one.
@if(has_g)
var<workgroup> of_halves: array<vec2<u32>, 2u * rows>;

// A head of queries with its row of g, or a head of keys with its row of v.
struct Place {
  of_keys: bool,
  first: u32, // row
  length: u32,
  head: u32,
  batch: u32,
}

fn place_of(id: u32) -> Place {
  let query_groups = p.query_tiles * p.heads * p.batches;
  if (id < query_groups) {
    return Place(false, id % p.query_tiles * rows, p.queries, id / p.query_tiles % p.heads,
                 id / p.query_tiles / p.heads);
  }
  let n = id - query_groups;
  return Place(true, n % p.key_tiles * rows, p.keys, n / p.key_tiles % p.key_heads, n / p.key_tiles / p.key_heads);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let id = wid.y * groups.x + wid.x;
  if (id >= (p.query_tiles * p.heads + p.key_tiles * p.key_heads) * p.batches) {
    return;
  }
  if (t < 2u) {
    atomicStore(&largest[t], 0u);
    atomicStore(&smallest[t], 0x7fffu);
    atomicStore(&special[t], 0u);
  }
  workgroupBarrier();
  let place = place_of(id);
  let row = place.first + t / 2u;
  let half = t % 2u;
  var one = nothing_seen;
  var other = nothing_seen;
  if (row < place.length) {
    let at = vec3<u32>(place.batch, place.head, row);
    if (place.of_keys) {
      one = see_row(1u, dot(at, p.k_strides.xyz), p.dims, half);
      other = see_row(2u, dot(at, p.v_strides.xyz), p.value_dims, half);
    } else {
      one = see_row(0u, dot(at, p.q_strides.xyz), p.dims, half);
      @if(has_g) other = see_row(3u, dot(at, p.g_strides.xyz), p.value_dims, half);
    }
  }
  add(0u, one);
  add(1u, other);
  @if(has_g) of_halves[t] = vec2<u32>(other.largest, one.smallest);
  workgroupBarrier();
  if (t == 0u) {
    store_ranges(p.ranges_at + id, vec2<u32>(range_of(0u), range_of(1u)));
  }
  @if(has_g) {
    let own_row = place.first + t;
    if (!place.of_keys && t < rows && own_row < p.queries) {
      let a = of_halves[2u * t];
      let b = of_halves[2u * t + 1u];
      let most = max(a.x, b.x);
      let least = min(a.y, b.y);
      var exponents = vec2<i32>(0, 255);
      if (most != 0u) {
        exponents.x = max(exponent_of(most), 0);
      }
      if (least < 0x7fffu) {
        exponents.y = max(exponent_of(least + 1u), 0);
      }
      let at = p.batches * p.heads * p.queries + 2u + (place.batch * p.heads + place.head) * p.queries + own_row;
      store_pairs(p.pairs_at + at, vec2<u32>(0u, u32(exponents.x) | (u32(exponents.y) << 8u)));
    }
  }
}
