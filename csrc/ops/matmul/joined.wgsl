// Tiles that run across batches. Where all batches share A, columns of B's and C's batches follow each other in the tiles, so that
// none but the last tile is partly empty: p.batch is 1, and p.n counts the columns of all.
//
// @const joined: bool // each batch has `p.n_of_batch` columns, at least 64. A group that a kernel loads or stores lies in one batch

import package::matmul::product::{Params, BandedTile};

// The batch of the tile's first column.
@if(joined) var<private> first_batch: u32;

// For the tile whose first column is n0, before the other functions are called.
fn find_batches(n0: u32) {
  @if(joined) first_batch = n0 / p.n_of_batch;
}

// The batch of column n. A tile of 128 columns meets at most three batches, of at least 64 columns each. (A division for each
// group that is stored would make some convolutions 5 to 10 % slower.)
fn batch_of_column(n: u32) -> u32 {
  @if(joined) {
    let second = (first_batch + 1u) * p.n_of_batch;
    return first_batch + select(0u, 1u, n >= second) + select(0u, 1u, n >= second + p.n_of_batch);
  }
  @else return 0u;
}

fn column_in_batch(n: u32) -> u32 {
  @if(joined) return n - batch_of_column(n) * p.n_of_batch;
  @else return n;
}

// The tile with the batch of column n in place of its own.
fn in_batch(here: BandedTile, n: u32) -> BandedTile {
  var own = here;
  own.batch += batch_of_column(n);
  own.c_batch += batch_of_column(n);
  return own;
}
