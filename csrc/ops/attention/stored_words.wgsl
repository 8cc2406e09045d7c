// How attention_blocks_queries.wgsl and attention_blocks_stored.wgsl order what stored.wgsl describes. A tile has the weights, then the
// gradients, each as rows of its queries, in groups of four keys. Weights are times what dropout multiplies them with.

// Where a tile starts. `head`: of the dispatch.
fn stored_at(head: u32, tile: u32) -> u32 {
  return head * p.groups_of_head + stored_before(tile) * (stored_rows / 2u);
}
