// K as a sequence of blocks that lie apart in A and B, such as the images of a convolution. Each is counted as `k_padded`
// columns of A, of which `k_block` exist.
//
// @const blocked: bool // else K is one block

import package::matmul::product::{Params};

// Where the step of K that starts at k lies.
struct StepPlace {
  k: u32,   // in its block
  end: u32, // of what exists of the block or, where there are no blocks, of the piece of K
  a: u32,   // the block's first element in A and B
  b: u32,
}

fn step_place(k: u32, k_end: u32) -> StepPlace {
  @if(blocked) {
    let block = k / p.k_padded;
    return StepPlace(k - block * p.k_padded, select(0u, p.k_block, k < k_end), block * p.a_block, block * p.b_block);
  }
  @else return StepPlace(k, k_end, 0u, 0u);
}
