// Groups of eight 2-byte elements of A and B, as raw bits, for tiles of `rows` rows of A, or 128 columns of B, by 32 of K. A
// kernel that imports this declares const rows: 64 or 128.
//
// @operand a: in {bits128, bits16} // bits128: groups of eight are aligned; behind the edges they are zero
// @operand b: in {bits128, bits16}
// @const   a_along_k: bool // groups of eight run along K, else across it
// @const   b_along_k: bool

const step_k = 32u;

// The row or column of group g where groups run along K; each has four groups. Eight neighbouring invocations store at once, the
// groups of two rows. Rows lie five groups apart in workgroup memory, which has eight banks of 16 bytes: rows r and r + 4 meet
// each bank once.
fn line_of_group(g: u32) -> u32 {
  let i = g / 4u;
  return i / 8u * 8u + i % 2u * 4u + i / 2u % 4u;
}

// The first element of group g of a tile. Groups that run across K: as many as `across` per index of K.
fn place_in_tile(g: u32, along_k: bool, across: u32) -> vec2<u32> { // across K, along K
  if (along_k) {
    return vec2<u32>(line_of_group(g), g % 4u * 8u);
  }
  return vec2<u32>(g % across * 8u, g / across);
}

// What lies beyond an edge is zero.
@if(a_is_bits128)
fn load_group_a(base: u32, m0: u32, k0: u32, k_end: u32, g: u32) -> vec4<u32> {
  let at = place_in_tile(g, a_along_k, rows / 8u) + vec2<u32>(m0, k0);
  if (at.x < p.m && at.y < k_end) {
    return load_a((base + at.x * p.a_row + at.y * p.a_column) >> 3u);
  }
  return vec4<u32>();
}
@else
fn load_group_a(base: u32, m0: u32, k0: u32, k_end: u32, g: u32) -> vec4<u32> {
  let at = place_in_tile(g, a_along_k, rows / 8u) + vec2<u32>(m0, k0);
  var group = vec4<u32>();
  for (var j = 0u; j < 8u; j++) {
    let m = at.x + select(j, 0u, a_along_k);
    let k = at.y + select(0u, j, a_along_k);
    if (m < p.m && k < k_end) {
      group[j / 2u] |= load_a(base + m * p.a_row + k * p.a_column) << (j % 2u * 16u);
    }
  }
  return group;
}

// Where column n of B starts. A kernel whose tiles run across batches defines its own version.
fn start_of_column_b(n: u32) -> u32 {
  return n * p.b_column;
}

@if(b_is_bits128)
fn load_group_b(base: u32, n0: u32, k0: u32, k_end: u32, g: u32) -> vec4<u32> {
  let at = place_in_tile(g, b_along_k, 16u) + vec2<u32>(n0, k0);
  if (at.x < p.n && at.y < k_end) {
    return load_b((base + start_of_column_b(at.x) + at.y * p.b_row) >> 3u);
  }
  return vec4<u32>();
}
@else
fn load_group_b(base: u32, n0: u32, k0: u32, k_end: u32, g: u32) -> vec4<u32> {
  let at = place_in_tile(g, b_along_k, 16u) + vec2<u32>(n0, k0);
  var group = vec4<u32>();
  for (var j = 0u; j < 8u; j++) {
    let n = at.x + select(j, 0u, b_along_k);
    let k = at.y + select(0u, j, b_along_k);
    if (n < p.n && k < k_end) {
      group[j / 2u] |= load_b(base + start_of_column_b(n) + k * p.b_row) << (j % 2u * 16u);
    }
  }
  return group;
}

// Where group g of a tile lies in the step at K = 0, in units of 16 bytes. A row of A, or column of B, beyond the edge is replaced by
// the last one: what is computed from it is not stored.
fn place_of_group_a(base: u32, m0: u32, g: u32) -> u32 {
  let at = place_in_tile(g, a_along_k, rows / 8u);
  @if(a_along_k) let last = p.m - 1u;
  @else let last = (p.m - 1u) / 8u * 8u;
  return (base + min(m0 + at.x, last) * p.a_row + at.y * p.a_column) >> 3u;
}

fn place_of_group_b(base: u32, n0: u32, g: u32) -> u32 {
  let at = place_in_tile(g, b_along_k, 16u);
  @if(b_along_k) let last = p.n - 1u;
  @else let last = (p.n - 1u) / 8u * 8u;
  return (base + start_of_column_b(min(n0 + at.x, last)) + at.y * p.b_row) >> 3u;
}

// Where the elements of a batch start, as the functions above count.
@repeat(x, {a, b})
fn base_of_$x(batch: u32) -> u32 {
  @if(${x}_is_bits128) return p.${x}_at * 8u + batch * p.${x}_batch;
  @else return p.${x}_at + batch * p.${x}_batch;
}
