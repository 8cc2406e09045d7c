// Cutting matrix products whose matrices are larger than a storage binding, or whose last tiles
// hold little.
#pragma once

#include "ops/matmul/matmul_gemm.h"
#include "ops/matmul/strategies.h"

namespace torch_webgpu {

/// The dimension along which to cut a product, and where.
struct GemmCut {
  enum class Dim { kNone, kBatch, kM, kN, kK } dim = Dim::kNone;
  int64_t at = 0; // the first part's size; of a cut of K, every part's but the last
};

/// The size of a product along a dimension.
int64_t size_of(const Gemm& problem, GemmCut::Dim dim);

/// How to make the matrices that do not fit a binding smaller; kNone if all fit, or if no cut helps
/// (then binding the matrices raises).
GemmCut choose_cut(const Gemm& problem);

/// How to leave the last rows or columns of a product in tiles of 128 x 128 to a product of their
/// own; kNone if that does not pay, or if the row of the table has other tiles.
GemmCut edge_cut(const Product& product, const Strategy& row, const ShaderTarget& target);

/// The part [begin, begin + size) of a product along a dimension.
Gemm part_of(const Gemm& problem, GemmCut::Dim dim, int64_t begin, int64_t size);

} // namespace torch_webgpu
