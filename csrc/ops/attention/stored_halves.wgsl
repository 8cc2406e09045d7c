// How attention_matrix_queries.wgsl and attention_matrix_stored.wgsl order what stored.wgsl describes. Of each eight keys of a tile
// there are the weights of all its queries, then the gradients, in groups of those eight. Neighbours in memory are of
// neighbouring queries. What dropout leaves out has a weight of 0. Weights of bfloat16 are times 2^weight_exponent.

@if(wide) const stored_rows = 64u;
@else const stored_rows = 128u;

const stored_columns = 16u;

// Weights of bfloat16 are at most 1 but for rounding.
const weight_exponent = 14;

// Where a tile starts. `head`: of the dispatch.
fn stored_at(head: u32, tile: u32) -> u32 {
  return head * p.groups_of_head + stored_before(tile) * (stored_rows / 4u);
}
