// How kernels on subgroup matrices store their sums, four at a time. A kernel that imports this imports in_batch and
// column_in_batch of joined.wgsl, too.
//
// @operand c: words {f16, bf16, f32, bits128} // bits128: of float32, where groups of four are aligned and end at the edge
// @const   c_along_m: bool // groups of four neighbours in C are one column's, else one row's

// A kernel with missing elements of B defines a version that leaves out their products with NaN and infinity.
fn without_missing(sum: f32, here: BandedTile, m: u32, n: u32) -> f32 {
  return sum;
}

// A kernel whose sums are scaled defines its own version.
fn in_units_of_c(sums: vec4<f32>, here: BandedTile, m: u32, n: u32) -> vec4<f32> {
  return sums;
}

fn store_element(c: u32, batch: u32, m: u32, n: u32, sum: f32) {
  @if(!owns_c && !c_is_bits128) {
    if (m < p.m && n < p.n) {
      store_c(p.c_at + c + m * p.c_row + column_of_c(n), epilogue(sum, batch, m, n));
    }
  }
}

// One sum, which may lie beyond the edge.
fn store_single(tile_place: BandedTile, m: u32, n_of_tile: u32, given: f32) {
  if (m < p.m && n_of_tile < p.n) {
    let here = in_batch(tile_place, n_of_tile);
    let n = column_in_batch(n_of_tile);
    let sum = without_missing(in_units_of_c(vec4<f32>(given), here, m, n).x, here, m, n);
    store_element(here.c_batch * p.c_batch, here.batch, m, n, sum);
  }
}

// Four neighbours in a row of C, or in a column.
fn store_group(tile_place: BandedTile, m: u32, n_of_tile: u32, given: vec4<f32>) {
  if (m >= p.m || n_of_tile >= p.n) {
    return;
  }
  let here = in_batch(tile_place, n_of_tile);
  let n = column_in_batch(n_of_tile);
  @if(c_along_m) let next = vec2<u32>(1u, 0u);
  @else let next = vec2<u32>(0u, 1u);
  let batch = here.batch;
  var sums = in_units_of_c(given, here, m, n);
  if (any((bitcast<vec4<u32>>(given) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u))) {
    for (var j = 0u; j < 4u; j++) {
      sums[j] = without_missing(sums[j], here, m + j * next.x, n + j * next.y);
    }
  }
  let c = here.c_batch * p.c_batch;
  let four = array<acc_t, 4>(sums.x, sums.y, sums.z, sums.w);
  @if(c_is_bits128 || owns_c) let values = epilogue4(four, batch, m, n, next);
  @if(c_is_bits128) {
    store_c((p.c_at * 4u + c + m * p.c_row + column_of_c(n)) >> 2u,
            bitcast<vec4<u32>>(vec4<f32>(values[0], values[1], values[2], values[3])));
  }
  @elif(owns_c) store4_c(p.c_at + c + m * p.c_row + column_of_c(n), values[0], values[1], values[2], values[3]);
  @else {
    // Rows of halves that are no whole words: only the ends of four neighbours may share words with others.
    @if(!c_is_f32 && !c_along_m) {
      let columns = vec4<u32>(column_of_c(n), column_of_c(n + 1u), column_of_c(n + 2u), column_of_c(n + 3u));
      if (n + 3u < p.n && all(columns == columns.x + vec4<u32>(0u, 1u, 2u, 3u))) {
        let values = epilogue4(four, batch, m, n, next);
        store4_c(p.c_at + c + m * p.c_row + columns.x, values[0], values[1], values[2], values[3]);
        return;
      }
    }
    store_element(c, batch, m, n, sums.x);
    store_element(c, batch, m + next.x, n + next.y, sums.y);
    store_element(c, batch, m + 2u * next.x, n + 2u * next.y, sums.z);
    store_element(c, batch, m + 3u * next.x, n + 3u * next.y, sums.w);
  }
}
