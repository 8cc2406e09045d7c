// How a product's matrices are divided into blocks for their ranges: 128 rows of A by 128 of K, and 128 columns of B by 128
// of K. gemm_ranges.wgsl and gemm_halves.wgsl have a workgroup for each.

const rows = 128u;

const block_k = 128u;

struct Params {
  m: u32,
  n: u32,
  k: u32,
  a_blocks: u32, // A matrix that the whole batch shares has the blocks of one.
  b_blocks: u32,
  a_batch: u32,  // strides, in elements
  a_row: u32,
  a_column: u32,
  b_batch: u32,
  b_row: u32,
  b_column: u32,
}

struct Block {
  is_a: bool,
  batch: u32,
  first: u32, // row of A, or column of B
  k: u32,
  row: u32,   // the number of the first block of the same rows or columns
}

// Those of A come first, as [batch][block of rows][block of K], then those of B likewise.
fn block_of(id: u32) -> Block {
  let is_a = id < p.a_blocks;
  let block = select(id - p.a_blocks, id, is_a);
  let along = (p.k + block_k - 1u) / block_k;
  let across = (select(p.n, p.m, is_a) + rows - 1u) / rows;
  return Block(is_a, block / along / across, block / along % across * rows, block % along * block_k, id - block % along);
}
