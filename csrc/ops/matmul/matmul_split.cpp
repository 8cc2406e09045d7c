#include "ops/matmul/matmul_split.h"

#include <ATen/ceil_div.h>

#include <algorithm>

#include "backend/tensor.h"
#include "launch/binding_list.h"
#include "launch/target_scope.h"
#include "ops/matmul/product_launch.h"
#include "runtime/context.h"

namespace torch_webgpu {
namespace {

using Dim = GemmCut::Dim;

// A matrix and the dimensions of the product that its rows and columns run along.
struct Side {
  const MatrixView& view;
  Dim rows, columns;
};

int64_t limit(const Side& side) {
  return static_cast<int64_t>(BindingList::safe_reach(plan_target(*side.view.tensor)));
}

int64_t bytes_of(const Gemm& problem, const Side& side) {
  const MatrixView& view = side.view;
  int64_t last = 0;
  for (const auto& [dim, stride] :
       {std::pair(Dim::kBatch, view.batch), {side.rows, view.row}, {side.columns, view.column}}) {
    last += std::max<int64_t>(size_of(problem, dim) - 1, 0) * stride;
  }
  return (last + 1) * static_cast<int64_t>(view.tensor->element_size());
}

bool fits(const Gemm& problem, const Side& side) {
  return side.view.tensor == nullptr ||
         buffer_of(*side.view.tensor).size <=
             plan_target(*side.view.tensor).max_storage_binding_size ||
         bytes_of(problem, side) <= limit(side);
}

// The dimension to cut. It is the batch, if there are several matrices. Else it is the rows or the
// columns, whichever reach further in memory.
Dim longest(const Gemm& problem, const Side& side) {
  const MatrixView& view = side.view;
  if (problem.batch > 1 && view.batch != 0) {
    return Dim::kBatch;
  }
  const int64_t rows = (size_of(problem, side.rows) - 1) * view.row;
  const int64_t columns = (size_of(problem, side.columns) - 1) * view.column;
  return rows >= columns ? side.rows : side.columns;
}

// Half of `size`, rounded up to whole tiles if it is more than one tile.
int64_t half(int64_t size, int64_t tile) {
  const int64_t middle = (size + 1) / 2;
  return middle <= tile ? middle : at::ceil_div(middle, tile) * tile;
}

} // namespace

int64_t size_of(const Gemm& problem, Dim dim) {
  switch (dim) {
  case Dim::kBatch:
    return problem.batch;
  case Dim::kM:
    return problem.m;
  case Dim::kN:
    return problem.n;
  default:
    return problem.k;
  }
}

GemmCut choose_cut(const Gemm& problem) {
  constexpr int64_t kTile = 128;
  if (problem.conv != nullptr) {
    return {};
  }
  for (const Side& side : {Side{problem.c, Dim::kM, Dim::kN}, Side{problem.d, Dim::kM, Dim::kN},
                           Side{problem.a, Dim::kM, Dim::kK}, Side{problem.b, Dim::kK, Dim::kN}}) {
    if (fits(problem, side)) {
      continue;
    }
    const Dim dim = longest(problem, side);
    const int64_t size = size_of(problem, dim);
    if (size < 2) {
      return {};
    }
    if (dim == Dim::kBatch) {
      return {dim, size / 2};
    }
    if (dim != Dim::kK) {
      return {dim, half(size, kTile)};
    }
    constexpr int64_t kStep = 16;
    const int64_t least = bytes_of(problem, side) / limit(side) + 1;
    const int64_t exact = at::ceil_div(size, least);
    const int64_t part = exact <= kStep ? exact : exact / kStep * kStep;
    // The products of all parts are stored in one tensor before they are added. It must fit a
    // binding.
    const int64_t parts = at::ceil_div(size, part);
    if (parts * problem.batch * problem.m * problem.n * 8 > limit(side)) {
      if (problem.batch > 1) {
        return {Dim::kBatch, problem.batch / 2};
      }
      const Dim longer = problem.m >= problem.n ? Dim::kM : Dim::kN;
      if (size_of(problem, longer) > 1) {
        return {longer, half(size_of(problem, longer), kTile)};
      }
    }
    return {dim, part};
  }
  return {};
}

// A few rows or columns beyond whole tiles are a product of their own, which reads the other matrix
// once, where the large kernels would need a further round of tiles for them (4097 cubed).
GemmCut edge_cut(const Product& product, const Strategy& row, const ShaderTarget& target) {
  constexpr int64_t kTile = 128;
  constexpr int64_t kLeastSide = 1024; // smaller products have few rounds, and other tiles
  // How many products take as long as an element that the product of the edge reads, and as a
  // dispatch: figures of float16 on an H200. float32's are smaller.
  constexpr int64_t kOfElement = 128;
  constexpr int64_t kOfDispatch = int64_t{1} << 29;
  const Gemm& g = product.gemm;
  const auto edge = [](int64_t size) { return size % kTile; };
  const auto may_cut = [&](int64_t size) { return edge(size) > 0 && edge(size) <= kFewColumns; };
  if (std::min(g.m, g.n) < kLeastSide || !(may_cut(g.m) || may_cut(g.n)) || g.conv != nullptr ||
      g.blocks > 1 || row.tile.m != kTile || row.tile.n != kTile) {
    return {};
  }
  const int64_t at_once = product_launch::processors(target);
  // Tiles across batches have one edge for all of their columns.
  const bool joined = row.divide != nullptr && row.divide(product, row, target).joined;
  const auto rounds = [&](int64_t m, int64_t n) {
    return at::ceil_div(product_launch::count_tiles(row.tile, m, n, g.batch, joined), at_once);
  };
  const int64_t of_round = at_once * kTile * kTile * g.k;
  const auto pays = [&](int64_t m, int64_t n, int64_t other) {
    const int64_t saved = (rounds(g.m, g.n) - rounds(m, n)) * of_round;
    return saved > g.batch * other * g.k * kOfElement + kOfDispatch;
  };
  const GemmCut columns{Dim::kN, g.n - edge(g.n)};
  const GemmCut rows_cut{Dim::kM, g.m - edge(g.m)};
  const bool by_columns = !joined && may_cut(g.n) && pays(g.m, columns.at, g.m);
  const bool by_rows = may_cut(g.m) && pays(rows_cut.at, g.n, g.n);
  // The product of the edge reads A for columns and B for rows, faster where it lies along K.
  if (by_columns && (product.a_along_k || !product.b_along_k || !by_rows)) {
    return columns;
  }
  return by_rows ? rows_cut : GemmCut{};
}

Gemm part_of(const Gemm& problem, Dim dim, int64_t begin, int64_t size) {
  Gemm part = problem;
  const auto move = [&](MatrixView& view, int64_t stride) {
    view.offset += begin * stride;
    if (view.reach >= 0) {
      view.reach -= begin * stride;
    }
  };
  switch (dim) {
  case Dim::kBatch:
    part.batch = size;
    part.origin[0] += begin;
    for (MatrixView* view : {&part.a, &part.b, &part.c, &part.d}) {
      move(*view, view->batch);
    }
    break;
  case Dim::kM:
    part.m = size;
    part.origin[problem.flipped ? 2 : 1] += begin;
    for (MatrixView* view : {&part.a, &part.c, &part.d}) {
      move(*view, view->row);
    }
    break;
  case Dim::kN:
    part.n = size;
    part.origin[problem.flipped ? 1 : 2] += begin;
    for (MatrixView* view : {&part.b, &part.c, &part.d}) {
      move(*view, view->column);
    }
    break;
  default:
    part.k = size;
    move(part.a, part.a.column);
    move(part.b, part.b.row);
  }
  return part;
}

} // namespace torch_webgpu
