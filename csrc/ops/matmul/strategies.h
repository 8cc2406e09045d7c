// The ways to compute a matrix product, as one table. A faster product is a row of it and a kernel
// file.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "ops/matmul/matmul_gemm.h"
#include "wgsl/dtype.h"
#include "wgsl/target.h"

namespace torch_webgpu {

/// A product as the rows of the table judge it.
struct Product {
  explicit Product(const Gemm& gemm);

  const Gemm& gemm;
  DType dtype;               // of A, B and D
  DType sum;                 // what its products are summed in
  bool a_along_k, b_along_k; // neighbours in memory lie along K
};

/// One dispatch of a row's kernel.
struct ProductDispatch {
  const Product& product;
  MatrixView c; // the matrix that is written: that of the product, or the sums of the pieces of K
  bool pieces = false; // the latter: the epilogue comes later
  int64_t tiles_m = 0, tiles_n = 0;
  int64_t splits = 1; // pieces of K, or phases of a convolution,
  int64_t k_piece = 0;
  int64_t k_padded = 0; // a block of K, up to a whole number of steps if there are several
  // Of kernels whose workgroups divide their rows as the product asks for: how many invocations
  // share a row, and how many rows an invocation computes, or a workgroup's tile has.
  int64_t lanes = 0, rows = 0;
  bool joined = false; // tiles run across the batches, whose columns follow each other
};

/// The most columns that kernels for few columns compute.
inline constexpr int64_t kFewColumns = 8;

/// The cost in a row of a product that it takes only where it is forced: above all others.
inline constexpr int kNever = 101;

struct Strategy {
  struct Tile {
    int64_t m, n, k; // of C, that a workgroup (of several tiles: an invocation) computes; step of K
  };
  /// How the kernel's workgroups divide one product.
  struct Division {
    Tile tile;
    int64_t enough_workgroups = 64; // from so many on, K is not cut
    int64_t pieces = 0;             // into how many K is cut; 0: chosen by `enough_workgroups`
    int64_t lanes = 0, rows = 0;
    bool joined = false; // tiles run across the batches; `pieces` is 1
  };

  std::string_view name;
  Tile tile;
  int64_t tiles_per_workgroup;
  int64_t longest_k; // of a piece, 0: any
  /// Whether the kernel computes this product on this target, any epilogue included.
  bool (*accepts)(const Product& product, const Strategy& row, const ShaderTarget& target);
  /// A number, 0 or more, to compare with the other rows that accept: the lowest wins, of equal
  /// ones the first row. Called before `accepts`.
  int (*cost)(const Product& product, const Strategy& row, const ShaderTarget& target);
  void (*launch)(const ProductDispatch& dispatch, const Strategy& row);
  /// Null: by the row's tile, whatever the product.
  Division (*divide)(const Product& product, const Strategy& row,
                     const ShaderTarget& target) = nullptr;
  /// The elements that the kernel loads at once where rows are aligned and end in whole groups of
  /// so many. gemm() copies a large product's operand that is not so, in groups of 16 bytes.
  /// 0: none.
  int64_t group = 0;
  /// Of convolutions without groups of channels: whether the row copies A into an order of its own,
  /// whatever strides that has, and B as conv_pack.h's grouped_images() does.
  bool lays_out = false;
};

/// The elements of 16 bytes.
inline int64_t aligned_group(const Product& product) { return 16 / info(product.dtype).bytes; }

/// Whether an operand's elements lie in aligned groups, along K or across it. `view.row` is the
/// stride across K, `view.column` that along it, and `rows` the size across.
bool has_groups(const Gemm& g, const MatrixView& view, int64_t rows, bool along_k, int64_t unit);

/// Whether a copy of an operand that is not so costs less than loads one by one. Each element of it
/// is used in so many products of an element.
bool pays_for_copy(const Gemm& g, int64_t uses);
/// Whether such a copy fits one binding, and takes about as much memory as what is copied: rows
/// that overlap, such as those of a sliding window, would multiply it. Arguments as for
/// has_groups().
bool may_be_padded(const Gemm& g, const MatrixView& view, int64_t rows, bool along_k, int64_t unit,
                   const ShaderTarget& target);

std::span<const Strategy> product_strategies();

/// Raises ValueError if there is none of this name.
const Strategy& strategy_named(std::string_view name);

/// The row for a product: the one that was forced, if it accepts; the one that the product wants,
/// if it accepts; else that of the lowest cost. Null if there is none.
StrategyChoice find_strategy(const Product& product, const ShaderTarget& target);
/// Raises the NotImplementedError of a product that no row takes, or not the forced one.
[[noreturn]] void raise_no_strategy(const char* op);

/// Takes the row of this name for every product, in this process, until it is called with an empty
/// name. For tests and measurements. Raises ValueError if there is none.
void force_strategy(std::string_view name);
bool is_strategy_forced();

/// Whether rows with less precision than float32's may compute it, by
/// torch.set_float32_matmul_precision or its relatives.
bool allows_less_precision(const Product& product);

/// The magnitudes of a product's bfloat16 matrices: the words that gemm_ranges.wgsl finds.
at::Tensor product_ranges(const Product& product);
/// Copies of a product's matrices of 2-byte elements (gemm_halves.wgsl): A's as [batch][K][row],
/// B's as [batch][K][column]. With the ranges of bfloat16 matrices, they are float16 numbers times
/// powers of two.
std::pair<at::Tensor, at::Tensor> product_halves(const Product& product, const at::Tensor& ranges);

/// Adds up the pieces of K, which lie in `pieces` as [piece][batch][m][n], and finishes C.
void launch_reduce(const Product& product, const at::Tensor& pieces);

} // namespace torch_webgpu
