// Where the columns of a tile lie in C, for kernels with groups of channels. They are computed once for a tile, into workgroup
// memory: each takes several divisions.

import package::matmul::product::{Params, BandedTile};
import package::conv::conv_places::{Params};
import package::conv::conv_groups::{place_in_image};

const columns_of_tile = 128u;

var<workgroup> column_places: array<u32, columns_of_tile>;

var<private> first_column: u32;

// Called by all invocations, with a barrier before the places are read.
fn find_columns(here: BandedTile, t: u32) {
  first_column = here.n0;
  if (t < columns_of_tile) {
    column_places[t] = place_in_image(here.n0 + t, p.c_outer, p.c_column);
  }
}

// Of column n of C, relative to its row.
fn found_column(n: u32) -> u32 {
  return column_places[n - first_column];
}
