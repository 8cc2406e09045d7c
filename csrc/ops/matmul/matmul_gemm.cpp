#include "ops/matmul/matmul_gemm.h"

#include <ATen/OpMathType.h>
#include <ATen/ceil_div.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "backend/empty.h"
#include "backend/tensor.h"
#include "launch/binding_list.h"
#include "launch/dtypes.h"
#include "launch/target_scope.h"
#include "ops/matmul/matmul_split.h"
#include "ops/matmul/padded_copy.h"
#include "ops/matmul/strategies.h"
#include "ops/matmul/tuning.h"

namespace torch_webgpu {
namespace {

using at::ceil_div;

// Into how many pieces to cut K: enough workgroups for every processor, pieces long enough to pay
// for the second pass over them.
int64_t choose_splits(int64_t workgroups, int64_t enough, int64_t k) {
  constexpr int64_t kShortestPiece = 256;
  if (workgroups >= enough || k < 2 * kShortestPiece) {
    return 1;
  }
  return std::min(ceil_div(enough, workgroups), k / kShortestPiece);
}

bool is_phased(const Gemm& g) { return g.conv != nullptr && g.conv->phases.count > 1; }

ProductDispatch plan(const Product& product, const Strategy& row, const ShaderTarget& target) {
  const Gemm& g = product.gemm;
  const Strategy::Division division = row.divide != nullptr ? row.divide(product, row, target)
                                                            : Strategy::Division{.tile = row.tile};
  const Strategy::Tile& tile = division.tile;
  ProductDispatch dispatch{.product = product,
                           .c = g.c,
                           .lanes = division.lanes,
                           .rows = division.rows,
                           .joined = division.joined};
  dispatch.tiles_m = ceil_div(g.m, tile.m);
  dispatch.tiles_n = ceil_div(division.joined ? g.batch * g.n : g.n, tile.n);
  dispatch.k_padded = g.blocks == 1 ? g.k : ceil_div(g.k, tile.k) * tile.k;
  const int64_t k = g.blocks * dispatch.k_padded;
  if (is_phased(g)) {
    dispatch.splits = g.conv->phases.count;
    dispatch.k_piece = k;
    return dispatch;
  }
  const int64_t tiles = (division.joined ? 1 : g.batch) * dispatch.tiles_m * dispatch.tiles_n;
  const int64_t workgroups = ceil_div(tiles, row.tiles_per_workgroup);
  int64_t splits = division.pieces != 0 ? division.pieces
                                        : choose_splits(workgroups, division.enough_workgroups, k);
  if (row.longest_k != 0) {
    splits = std::max(splits, ceil_div(k, row.longest_k));
  }
  const int64_t step = std::max<int64_t>(tile.k, 16);
  dispatch.k_piece = ceil_div(std::max<int64_t>(ceil_div(k, splits), 1), step) * step;
  dispatch.splits = std::max<int64_t>(ceil_div(k, dispatch.k_piece), 1);
  return dispatch;
}

// A tensor for the products of `count` parts of K.
at::Tensor new_pieces(const Product& product, int64_t count) {
  const Gemm& g = product.gemm;
  const at::ScalarType type = product.sum == product.dtype ? g.a.tensor->scalar_type()
                              : product.sum == DType::kF32 ? at::kFloat
                                                           : at::kInt;
  return empty_webgpu({count, g.batch, g.m, g.n}, type, g.a.tensor->device());
}

MatrixView piece_view(const Gemm& g, const at::Tensor& pieces, int64_t first) {
  return {&pieces, first * g.batch * g.m * g.n, g.m * g.n, g.n, 1};
}

void launch(const Product& product, const Strategy& row, const ShaderTarget& target) {
  ProductDispatch dispatch = plan(product, row, target);
  if (dispatch.splits == 1 || is_phased(product.gemm)) {
    row.launch(dispatch, row);
    return;
  }
  const at::Tensor pieces = new_pieces(product, dispatch.splits);
  dispatch.pieces = true;
  dispatch.c = piece_view(product.gemm, pieces, 0);
  row.launch(dispatch, row);
  launch_reduce(product, pieces);
}

// The same, with the last rows or columns as a product of their own where these would take a round
// of tiles.
void launch_tiles(const Gemm& g, const Strategy& row, const ShaderTarget& target) {
  const Product product(g);
  const GemmCut cut = edge_cut(product, row, target);
  if (cut.dim == GemmCut::Dim::kNone) {
    launch(product, row, target);
    return;
  }
  const Gemm tiles = part_of(g, cut.dim, 0, cut.at);
  launch(Product(tiles), row, target);
  Gemm edge = part_of(g, cut.dim, cut.at, size_of(g, cut.dim) - cut.at);
  edge.wanted = nullptr;
  edge.is_part = true;
  gemm(edge);
}

void launch_in_groups(const Gemm& given, const Strategy& row, const ShaderTarget& target) {
  Gemm g = given;
  const Product product(given);
  const int64_t group = aligned_group(product);
  // An operand as strides across K and along K, or its copy.
  const auto aligned = [&](std::optional<PaddedCopy>& copy, const MatrixView& view, int64_t rows,
                           int64_t uses, bool along_k) {
    if (!pays_for_copy(given, uses) || has_groups(given, view, rows, along_k, row.group) ||
        !may_be_padded(given, view, rows, along_k, group, target)) {
      return view;
    }
    copy.emplace(given, view, rows, along_k, group);
    return copy->make(given.op);
  };
  std::optional<PaddedCopy> a;
  std::optional<PaddedCopy> b;
  g.a = aligned(a, given.a, given.m, given.n, product.a_along_k);
  g.b = aligned(b, given.b.transposed(), given.n, given.m, product.b_along_k).transposed();
  launch_tiles(g, row, target);
}

// The same product with rows for columns.
Gemm transposed(const Gemm& g) {
  Gemm other = g;
  other.flipped = !g.flipped;
  std::swap(other.m, other.n);
  other.a = g.b.transposed();
  other.b = g.a.transposed();
  other.c = g.c.transposed();
  other.d = g.d.transposed();
  return other;
}

// The kernels store along the rows of C, and take a vector as a column. If C's columns are
// contiguous, or C is one row, the transposed product is computed.
Gemm oriented(const Gemm& problem) {
  const bool by_columns = problem.c.row == 1 && problem.c.column != 1;
  if (problem.conv != nullptr || problem.n == 1 || !(problem.m == 1 || by_columns)) {
    return problem;
  }
  return transposed(problem);
}

struct Choice {
  const Strategy* row; // null: none takes the product
  bool flips;          // The row is for the transposed product.
  int cost;
};

Choice choose(const Gemm& g, const ShaderTarget& target) {
  const StrategyChoice choice = find_strategy(Product(g), target);
  // Some rows of the table want few columns. The transposed product has them where this has few
  // rows.
  if (g.conv == nullptr && g.m <= kFewColumns && g.m < g.n) {
    const Gemm flipped = transposed(g);
    const StrategyChoice better = find_strategy(Product(flipped), target);
    if (better.row != nullptr && (choice.row == nullptr || better.cost < choice.cost)) {
      return {better.row, true, better.cost};
    }
  }
  return {choice.row, false, choice.cost};
}

Choice choose_or_raise(const Gemm& g, const ShaderTarget& target) {
  const Choice choice = choose(g, target);
  if (choice.row == nullptr) {
    raise_no_strategy(g.op);
  }
  return choice;
}

void run(const Gemm& g, const Strategy& row, const ShaderTarget& target) {
  if (row.group != 0 && g.blocks == 1 && pays_for_copy(g, std::max(g.m, g.n))) {
    launch_in_groups(g, row, target);
  } else {
    launch_tiles(g, row, target);
  }
}

void run(const Gemm& g) {
  const ShaderTarget& target = plan_target(*g.a.tensor);
  if (C10_UNLIKELY(tuning::is_enabled())) {
    tuning::measure(g, target,
                    [&](const Gemm& problem, const Strategy& row) { run(problem, row, target); });
  }
  const Choice choice = choose_or_raise(g, target);
  if (choice.flips) {
    run(transposed(g), *choice.row, target);
  } else {
    run(g, *choice.row, target);
  }
}

// Computes the product of each part of K, then the sum of these products.
void gemm_in_parts(const Gemm& problem, int64_t k_part) {
  const Product product(problem);
  const at::Tensor pieces = new_pieces(product, ceil_div(problem.k, k_part));
  for (int64_t s = 0; s < pieces.size(0); ++s) {
    Gemm part =
        part_of(problem, GemmCut::Dim::kK, s * k_part, std::min(k_part, problem.k - s * k_part));
    part.c = piece_view(problem, pieces, s);
    part.d = {};
    part.alpha = 1;
    part.fusion = nullptr;
    gemm(part);
  }
  launch_reduce(product, pieces);
}

} // namespace

MatrixView MatrixView::of(const at::Tensor& tensor) {
  const bool batched = tensor.dim() == 3;
  return {&tensor, tensor.storage_offset(), batched ? tensor.stride(0) : 0, tensor.stride(-2),
          tensor.stride(-1)};
}

MatrixView::Range MatrixView::range(int64_t batches, int64_t rows, int64_t columns) const {
  const Buffer& buffer = buffer_of(*tensor);
  const auto bytes = static_cast<uint64_t>(tensor->itemsize());
  // The matrix that a convolution gathers from an empty tensor is not empty: it is all padding.
  if (batches * rows * columns == 0 || tensor->numel() == 0) {
    return {buffer, 0, 0};
  }
  const int64_t last =
      reach >= 0 ? reach : (batches - 1) * batch + (rows - 1) * row + (columns - 1) * column;
  const uint64_t base = byte_offset(*tensor) - tensor->storage_offset() * bytes;
  const uint64_t end = static_cast<uint64_t>(offset + last + 1) * bytes;
  if (end > tensor->storage().nbytes()) {
    raise_beyond_storage(*tensor);
  }
  return {buffer, base + offset * bytes, base + end};
}

bool is_gemm_dtype(at::ScalarType type) {
  return native_dtype(type).has_value() && type != at::kBool;
}

void gemm(const Gemm& problem) {
  if (problem.batch == 0 || problem.m == 0 || problem.n == 0) {
    return;
  }
  const at::ScalarType type = at::toOpMathType(problem.c.tensor->scalar_type());
  check_fits(problem.alpha, type);
  check_fits(problem.beta, type);
  const GemmCut cut = choose_cut(problem);
  if (cut.dim == GemmCut::Dim::kK) {
    gemm_in_parts(problem, cut.at);
    return;
  }
  if (cut.dim != GemmCut::Dim::kNone) {
    const int64_t size = size_of(problem, cut.dim);
    gemm(part_of(problem, cut.dim, 0, cut.at));
    gemm(part_of(problem, cut.dim, cut.at, size - cut.at));
    return;
  }
  run(oriented(problem));
}

const Strategy& gemm_strategy(const Gemm& problem, const ShaderTarget& target) {
  return *choose_or_raise(oriented(problem), target).row;
}

StrategyChoice gemm_choice(const Gemm& problem, const ShaderTarget& target) {
  const Choice choice = choose(oriented(problem), target);
  return {choice.row, choice.row == nullptr ? kNoCost : choice.cost};
}

} // namespace torch_webgpu
