#include "ops/matmul/strategies.h"

#include <ATen/Context.h>
#include <ATen/ceil_div.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <limits>
#include <optional>

#include "backend/empty.h"
#include "backend/tensor.h"
#include "kernels/conv_depthwise.h"
#include "kernels/conv_depthwise_weight.h"
#include "kernels/conv_few.h"
#include "kernels/conv_lines.h"
#include "kernels/conv_matrix.h"
#include "kernels/conv_planes.h"
#include "kernels/conv_registers.h"
#include "kernels/conv_squares.h"
#include "kernels/conv_taps.h"
#include "kernels/gemm.h"
#include "kernels/gemm_bf16.h"
#include "kernels/gemm_direct.h"
#include "kernels/gemm_halves.h"
#include "kernels/gemm_high.h"
#include "kernels/gemm_matrix.h"
#include "kernels/gemm_ranges.h"
#include "kernels/gemm_reduce.h"
#include "kernels/gemm_registers.h"
#include "kernels/gemm_registers_small.h"
#include "kernels/gemm_scale.h"
#include "kernels/gemm_strips.h"
#include "kernels/gemm_thin.h"
#include "kernels/gemv.h"
#include "launch/binding_list.h"
#include "launch/dtypes.h"
#include "launch/matrix_units.h"
#include "launch/row_lanes.h"
#include "launch/target_scope.h"
#include "ops/conv/conv_gemm.h"
#include "ops/conv/conv_rows.h"
#include "ops/conv/conv_winograd.h"
#include "ops/matmul/padded_copy.h"
#include "ops/matmul/product_launch.h"
#include "ops/matmul/tuning.h"

namespace torch_webgpu {
namespace {

using at::ceil_div;
using namespace product_launch;

DType sum_dtype(DType dtype) {
  switch (info(dtype).kind) {
  case Kind::kFloat:
    return DType::kF32;
  case Kind::kLong:
    return DType::kI64;
  case Kind::kComplex:
    return DType::kC64;
  default:
    return DType::kI32;
  }
}

// ---- The rows

bool is_plain(const Product& product, const Strategy&, const ShaderTarget&) {
  return product.gemm.conv == nullptr && product.gemm.blocks == 1;
}

bool is_convolution(const Product& product, const Strategy&, const ShaderTarget&) {
  return product.gemm.conv != nullptr && !product.gemm.conv->grouped;
}

bool is_grouped_convolution(const Product& product) {
  return product.gemm.conv != nullptr && product.gemm.conv->grouped;
}

// Whether four elements side by side in C always fill whole words.
bool is_packed(const ProductDispatch& dispatch) {
  const Gemm& g = dispatch.product.gemm;
  const auto bytes = static_cast<int64_t>(dispatch.c.tensor->element_size());
  if (bytes >= 4) {
    return false; // an element is a word or more: there is nothing to pack
  }
  const int64_t per_word = 4 / bytes;
  if (g.conv != nullptr && g.conv->form != kernels::conv_product::Form::weight &&
      !(in_units(4, {g.conv->params.position_volume[0]}) &&
        in_units(per_word, {g.conv->params.c_outer}))) {
    return false; // C's columns have two levels
  }
  return in_units(4, {g.n}) && dispatch.c.column == 1 &&
         in_units(per_word, {dispatch.c.offset, dispatch.c.row, dispatch.c.batch});
}

// One element of C an invocation. For a convolution with few rows, conv_few.wgsl is faster, and
// worth a copy of the images.
int cost_of_direct(const Product& product, const Strategy&, const ShaderTarget&) {
  const Gemm& g = product.gemm;
  const bool tiny = g.m <= 8 && g.n <= 8 && g.k <= 64;
  return tiny ? 0 : g.conv != nullptr && g.m <= 2 ? 4 : 100;
}

int cost_of_convolution_direct(const Product& product, const Strategy& row,
                               const ShaderTarget& target) {
  // Software adapters compile the barriers of tiles slowly, and so few elements leave these empty.
  constexpr int64_t kFew = 256;
  const Gemm& g = product.gemm;
  const bool is_weight = g.conv != nullptr && g.conv->form == kernels::conv_product::Form::weight;
  const bool is_small = is_weight && g.m * g.n <= kFew && is_software(target);
  return is_small ? 5 : cost_of_direct(product, row, target);
}

void launch_direct(const ProductDispatch& dispatch, const Strategy&) {
  namespace kernel = kernels::gemm_direct;
  const Gemm& g = dispatch.product.gemm;
  kernel::Launch launch(g.op);
  bind_operands(launch, dispatch);
  kernel::Params p;
  set_matrices(p, dispatch);
  run<kernel::Regions>(launch, p, dispatch);
}

// A column. With fewer lanes a workgroup computes more rows; with more lanes a long row is shared.
constexpr int64_t kVectorInvocations = kernels::gemv::kWorkgroup;

bool is_vector(const Product& product, const Strategy& row, const ShaderTarget& target) {
  return is_plain(product, row, target) && product.gemm.n == 1;
}

int cost_of_vector(const Product& product, const Strategy& row, const ShaderTarget&) {
  const Gemm& g = product.gemm;
  const int64_t along = g.k < 64 ? 8 : g.m <= 16 ? 128 : 32;
  const int64_t across = g.m >= 4096 ? 4 : g.m >= 128 ? 16 : 64;
  return row.tile.m * (product.a_along_k ? along : across) == kVectorInvocations ? 10 : 15;
}

void launch_vector(const ProductDispatch& dispatch, const Strategy& row) {
  namespace kernel = kernels::gemv;
  const Gemm& g = dispatch.product.gemm;
  kernel::Launch launch(g.op);
  bind_operands(launch, dispatch);
  kernel::Params p;
  set_matrices(p, dispatch);
  p.lanes = u32(kVectorInvocations / row.tile.m);
  run<kernel::Regions>(launch, p, dispatch);
}

bool a_has_groups(const Product& product, int64_t unit) {
  const Gemm& g = product.gemm;
  return has_groups(g, g.a, g.m, product.a_along_k, unit);
}

bool b_has_groups(const Product& product, int64_t unit) {
  const Gemm& g = product.gemm;
  return has_groups(g, g.b.transposed(), g.n, product.b_along_k, unit);
}

// Few columns of floating point numbers, with A in groups of 16 bytes.
namespace thin {

constexpr int64_t kInvocations = kernels::gemm_thin::kWorkgroup;

int64_t power_of_two(int64_t least) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(least, 1))));
}

// Whether columns of B are read in groups of 16 bytes, as A's rows are.
bool b_is_grouped(const Product& product) {
  const Gemm& g = product.gemm;
  return product.a_along_k && has_groups(g, g.b.transposed(), g.n, true, aligned_group(product));
}

// Columns that lie otherwise are copied if A is large: without, each group of A waits for as many
// loads as it has elements, for each column (4104 x 4104 float16 by 4104 x 8 on an H200: 150 us,
// and 36 with the copy).
bool is_copied(const Product& product) {
  constexpr int64_t kFewestUses = 512; // rows of A
  constexpr int64_t kFewestProducts = int64_t{1} << 22;
  const Gemm& g = product.gemm;
  return product.a_along_k && g.m >= kFewestUses && g.m * g.n * g.k >= kFewestProducts &&
         !b_is_grouped(product);
}

bool accepts(const Product& product, const Strategy& row, const ShaderTarget& target) {
  const Gemm& g = product.gemm;
  const int64_t group = aligned_group(product);
  const bool ends = !product.a_along_k || g.k % group == 0;
  return is_plain(product, row, target) && g.n <= kFewColumns &&
         info(product.dtype).kind == Kind::kFloat && a_has_groups(product, group) &&
         (ends || b_is_grouped(product) || is_copied(product));
}

int cost(const Product&, const Strategy&, const ShaderTarget&) { return 5; }

// As many invocations as keep the device busy, but for long rows at least two subgroups each, so
// that they read long stretches of memory; one, where a single column has many rows. An invocation
// with several rows loads and converts an element of B once for all of them: it takes several if
// enough invocations are left.
Strategy::Division divide(const Product& product, const Strategy&, const ShaderTarget& target) {
  const Gemm& g = product.gemm;
  const int64_t busy = int64_t{target.workgroups_to_fill} * 32;
  Strategy::Division division;
  division.enough_workgroups = std::max<int64_t>(target.workgroups_to_fill / 8, 1);
  if (product.a_along_k) {
    const int64_t rows = g.m * g.batch;
    const int64_t wanted = g.n > 4 ? 4 : 2;
    const int64_t most = std::max<int64_t>(rows * kInvocations / busy, 1);
    division.rows =
        std::min(wanted, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(most))));
    const int64_t subgroup = target.subgroups ? std::clamp(target.subgroup_max_size, 8u, 64u) : 32;
    const bool are_many = g.n == 1 && rows * subgroup > 4 * busy;
    const int64_t least = std::min(are_many ? subgroup : 2 * subgroup, kInvocations);
    division.lanes = std::clamp(power_of_two(busy * division.rows / rows), least, kInvocations);
    division.lanes = std::min(division.lanes, power_of_two(g.k / aligned_group(product)));
  } else {
    const int64_t groups = ceil_div(g.m, aligned_group(product));
    int64_t neighbours = std::clamp<int64_t>(kInvocations / power_of_two(g.k / 16), 8, 32);
    neighbours = std::min(neighbours, power_of_two(groups));
    while (neighbours > 2 && ceil_div(groups, neighbours) * g.batch < division.enough_workgroups) {
      neighbours /= 2;
    }
    division.lanes = kInvocations / neighbours;
    division.rows = aligned_group(product);
  }
  division.tile = {kInvocations / division.lanes * division.rows, kFewColumns, 16};
  return division;
}

// How many neighbouring lanes of a row a subgroup holds for certain.
uint32_t width(const ProductDispatch& dispatch, const ShaderTarget& target) {
  if (!target.subgroups) {
    return 1;
  }
  const int64_t apart = dispatch.product.a_along_k ? 1 : kInvocations / dispatch.lanes;
  const int64_t held = std::min<int64_t>(target.subgroup_min_size, 32) / apart;
  return u32(std::clamp<int64_t>(held, 1, dispatch.lanes));
}

// Whether two rows side by side in C always fill whole words.
bool owns_words(const ProductDispatch& dispatch) {
  const Gemm& g = dispatch.product.gemm;
  return dispatch.c.tensor->element_size() == 2 && dispatch.c.row == 1 &&
         kInvocations / dispatch.lanes * dispatch.rows >= 2 &&
         in_units(2, {g.m, dispatch.c.offset, dispatch.c.column, dispatch.c.batch});
}

void launch(const ProductDispatch& dispatch, const Strategy& row) {
  if (is_copied(dispatch.product)) {
    Gemm g = dispatch.product.gemm;
    PaddedCopy columns(g, g.b.transposed(), g.n, true, aligned_group(dispatch.product));
    g.b = columns.make(g.op).transposed();
    const Product product(g);
    launch({.product = product,
            .c = dispatch.c,
            .pieces = dispatch.pieces,
            .tiles_m = dispatch.tiles_m,
            .tiles_n = dispatch.tiles_n,
            .splits = dispatch.splits,
            .k_piece = dispatch.k_piece,
            .k_padded = dispatch.k_padded,
            .lanes = dispatch.lanes,
            .rows = dispatch.rows},
           row);
    return;
  }
  namespace kernel = kernels::gemm_thin;
  const Product& product = dispatch.product;
  const Gemm& g = product.gemm;
  kernel::Launch launch(g.op);
  bind_operands(launch, dispatch, {}, DType::kBits128,
                b_is_grouped(product) ? DType::kBits128 : product.dtype);
  launch.elements(product.dtype == DType::kF32   ? kernel::Elements::elements_f32
                  : product.dtype == DType::kF16 ? kernel::Elements::elements_f16
                                                 : kernel::Elements::elements_bf16);
  launch.a_along_k(product.a_along_k).columns(u32(power_of_two(g.n)));
  launch.rows_along_k(product.a_along_k ? u32(dispatch.rows) : 1);
  launch.width(width(dispatch, plan_target(*g.a.tensor)));
  if (owns_words(dispatch)) {
    launch.own_words_of_c();
  }
  kernel::Params p;
  set_matrices(p, dispatch);
  p.lanes = u32(dispatch.lanes);
  run<kernel::Regions>(launch, p, dispatch);
}

} // namespace thin

// float32 where cores of a CPU compute: an invocation computes a strip of C alone.
namespace strips {

int64_t columns(const Gemm& g) { return g.n == 1 ? 1 : 4; }

// A column of B has no groups across K.
bool b_along_k(const Product& product) { return product.gemm.n == 1 || product.b_along_k; }

bool a_is_grouped(const Product& product) { return a_has_groups(product, 4); }

bool b_is_grouped(const Product& product) {
  const Gemm& g = product.gemm;
  return has_groups(g, g.b.transposed(), g.n, b_along_k(product), 4);
}

bool accepts(const Product& product, const Strategy& row, const ShaderTarget& target) {
  return is_plain(product, row, target) && product.dtype == DType::kF32 &&
         product.gemm.c.tensor->scalar_type() == at::kFloat;
}

int cost(const Product& product, const Strategy&, const ShaderTarget& target) {
  constexpr int64_t kLongest = 64; // products of a sum for each sum that there is
  constexpr int64_t kShort = 4096; // of any number of sums
  const Gemm& g = product.gemm;
  const bool is_shared = g.k > std::max(kShort, kLongest * g.m * g.n * g.batch);
  return is_software(target) && !is_shared ? 4 : kNever;
}

// The most rows with which there are enough workgroups.
int64_t rows(const Product& product) {
  constexpr int64_t kEnough = 4 * kernels::gemm_strips::kWorkgroup;
  const Gemm& g = product.gemm;
  const int64_t strips = ceil_div(g.n, columns(g)) * g.batch;
  for (const int64_t count : {8, 4}) {
    if (g.m > count / 2 && ceil_div(g.m, count) * strips >= kEnough) {
      return count;
    }
  }
  return a_is_grouped(product) && !product.a_along_k ? 4 : 1; // groups across K are of four rows
}

Strategy::Division divide(const Product& product, const Strategy&, const ShaderTarget&) {
  const int64_t count = rows(product);
  return {.tile = {count, columns(product.gemm), 4}, .enough_workgroups = 1, .rows = count};
}

void launch(const ProductDispatch& dispatch, const Strategy&) {
  namespace kernel = kernels::gemm_strips;
  const Product& product = dispatch.product;
  const Gemm& g = product.gemm;
  kernel::Launch launch(g.op);
  bind_operands(launch, dispatch, {}, a_is_grouped(product) ? DType::kBits128 : DType::kF32,
                b_is_grouped(product) ? DType::kBits128 : DType::kF32);
  launch.height(dispatch.rows == 8   ? kernel::Height::rows_8
                : dispatch.rows == 4 ? kernel::Height::rows_4
                                     : kernel::Height::rows_1);
  launch.width(columns(g) == 4 ? kernel::Width::columns_4 : kernel::Width::columns_1);
  launch.a_along_k(product.a_along_k).b_along_k(b_along_k(product)).whole_k(g.k % 4 == 0);
  kernel::Params p;
  set_matrices(p, dispatch);
  run<kernel::Regions>(launch, p, dispatch);
}

} // namespace strips

// Tiles of any type and strides, of plain products and of convolutions.
bool fits_tiles(const Product& product, const Strategy& row, const ShaderTarget& target) {
  const bool wide = info(product.sum).bytes == 8;
  const auto side = u32(row.tile.k);
  const uint32_t storage = 2 * side * (wide ? side * 32 : (side + 1) * 16);
  // For types with NaN, the convolution kernel keeps a flag in workgroup memory.
  const bool flag =
      product.gemm.conv != nullptr && product.sum != DType::kI32 && product.sum != DType::kI64;
  return storage + (flag ? 4 : 0) <= target.max_workgroup_storage &&
         side * side <= target.max_workgroup_invocations;
}

bool fits_plain_tiles(const Product& product, const Strategy& row, const ShaderTarget& target) {
  return is_plain(product, row, target) && fits_tiles(product, row, target);
}

bool fits_convolution_tiles(const Product& product, const Strategy& row,
                            const ShaderTarget& target) {
  return is_convolution(product, row, target) && fits_tiles(product, row, target);
}

int cost_of_tiles(const Product& product, const Strategy& row, const ShaderTarget&) {
  const bool narrow = product.gemm.m <= 32 || product.gemm.n <= 32;
  return row.tile.m == 32 ? 45 : narrow ? 50 : 40;
}

void launch_tiles(const ProductDispatch& dispatch, const Strategy& row) {
  namespace kernel = kernels::gemm;
  const Gemm& g = dispatch.product.gemm;
  kernel::Launch launch(g.op);
  bind_operands(launch, dispatch);
  launch.tile(u32(row.tile.k));
  if (is_packed(dispatch)) {
    launch.own_words_of_c();
  }
  kernel::Params p;
  set_matrices(p, dispatch);
  run<kernel::Regions>(launch, p, dispatch, {.in_fours = is_packed(dispatch)});
}

void launch_convolution(const ProductDispatch& dispatch, bool direct, int64_t tile) {
  namespace kernel = kernels::conv_product;
  const Gemm& g = dispatch.product.gemm;
  kernel::Launch launch(g.op);
  bind_operands(launch, dispatch);
  launch.tile(u32(tile)).form(g.conv->form).strided(g.conv->strided).direct(direct);
  if (!direct && is_packed(dispatch)) {
    launch.own_words_of_c();
  }
  kernel::Params p = g.conv->params;
  set_matrices(p, dispatch);
  if (dispatch.pieces) {
    p.c_outer = p.position_volume[0]; // positions of one image follow those of another
  }
  run<kernel::Regions>(launch, p, dispatch);
}

void launch_convolution_tiles(const ProductDispatch& dispatch, const Strategy& row) {
  launch_convolution(dispatch, false, row.tile.k);
}

void launch_convolution_direct(const ProductDispatch& dispatch, const Strategy&) {
  launch_convolution(dispatch, true, 8);
}

// Whether each piece of K, and each block of it, is a whole number of steps of so many columns of
// A.
bool has_whole_steps(const ProductDispatch& dispatch, int64_t step) {
  const Gemm& g = dispatch.product.gemm;
  // Phases of a convolution have a K of their own each.
  const bool is_one = g.conv == nullptr || g.conv->phases.count == 1;
  return is_one && g.k > 0 && g.k % step == 0 && dispatch.k_piece % step == 0;
}

// Whether each piece of K is a whole number of steps but for the end of the last one, in a product
// of plain matrices with at least one whole step.
bool has_ragged_end(const ProductDispatch& dispatch, int64_t step) {
  const Gemm& g = dispatch.product.gemm;
  return g.conv == nullptr && g.blocks == 1 && g.k > step && g.k % step != 0 &&
         dispatch.k_piece % step == 0;
}

// Whether tiles may run across batches (joined.wgsl) in kernels that load groups of so many
// elements.
bool can_join(const Product& product, int64_t group) {
  // Of a batch. A tile of 128 columns meets at most three batches then: joined.wgsl looks for no
  // more.
  constexpr int64_t kFewestColumns = 64;
  const Gemm& g = product.gemm;
  if (g.batch == 1 || g.a.batch != 0 || g.conv != nullptr || g.blocks > 1) {
    return false;
  }
  return g.n >= kFewestColumns && in_units(group, {g.n}) &&
         g.batch * g.n <= std::numeric_limits<int32_t>::max() && a_has_groups(product, group) &&
         b_has_groups(product, group) && has_fours_of_c({.product = product, .c = g.c});
}

// Of kernels with large tiles. A long K is cut into more pieces than other products', to fill a
// large device: what is stored and added again is small beside the operands.
Strategy::Division divide_in(const Strategy::Tile& tile, const Product& product,
                             const ShaderTarget& target) {
  constexpr int64_t kLongK = 2048;
  const Gemm& g = product.gemm;
  Strategy::Division division{.tile = tile, .rows = tile.m};
  const int64_t tiles = count_tiles(tile, g.m, g.n, g.batch, false);
  const int64_t enough = target.workgroups_to_fill / 8;
  if (g.blocks * g.k >= kLongK && 2 * tiles <= enough) {
    division.enough_workgroups = std::max(division.enough_workgroups, enough);
  }
  return division;
}

Strategy::Division divide_large(const Product& product, const Strategy& row,
                                const ShaderTarget& target) {
  return divide_in(row.tile, product, target);
}

// Floating point numbers in groups of four, with blocks of C in registers.
namespace registers {

constexpr int64_t kGroup = 4; // elements that are loaded at once
// Columns of a tile of gemm_registers.wgsl, which has 64 or 128 rows.
constexpr int64_t kLargest = 128;
// K of a step of gemm_registers.wgsl, and of its loop.
constexpr int64_t kStep = 8;
constexpr int64_t kLoop = 16;
// Rows and columns of the smallest tile of gemm_registers_small.wgsl.
constexpr int64_t kSmallest = 32;

// Of the staged tiles, bytes.
uint32_t storage(const Strategy& row) {
  const bool twice = row.tile.m == kLargest;
  return (twice ? 2 : 1) * 2 * u32(row.tile.k) * u32(row.tile.m / 4 + 1) * 16;
}

bool fits(const Product& product, const Strategy& row, const ShaderTarget& target,
          uint32_t further = 0) {
  const at::ScalarType stored = product.gemm.c.tensor->scalar_type();
  return info(product.dtype).kind == Kind::kFloat &&
         (stored == at::kFloat || stored == product.gemm.a.tensor->scalar_type()) &&
         target.max_workgroup_storage >= storage(row) + further &&
         target.max_workgroup_invocations >= kernels::gemm_registers_small::kWorkgroup;
}

bool accepts(const Product& product, const Strategy& row, const ShaderTarget& target) {
  const Gemm& g = product.gemm;
  const auto has_copy = [&](const MatrixView& view, int64_t rows, int64_t uses, bool along_k) {
    return pays_for_copy(g, uses) &&
           may_be_padded(g, view, rows, along_k, aligned_group(product), target);
  };
  return g.conv == nullptr && fits(product, row, target) && g.m >= 4 && g.n >= 4 &&
         g.c.column == 1 &&
         (a_has_groups(product, 4) || has_copy(g.a, g.m, g.n, product.a_along_k)) &&
         (b_has_groups(product, 4) || has_copy(g.b.transposed(), g.n, g.m, product.b_along_k));
}

// A tile, and how long its products take, in percent of those of 128 x 128 where a processor has
// two tiles or more: figures of an H200, with one, two, or at least three tiles for each processor.
// Convolutions, which wait for what they gather, have figures of their own.
struct Candidate {
  Strategy::Tile tile;
  std::array<int64_t, 3> slowness;
  std::array<int64_t, 3> of_convolutions;
};

// From the largest on. kFull and kHalf are of gemm_registers.wgsl.
enum : uint8_t { kFull, kHalf, kMiddle, kSmall, kCount };
constexpr std::array<Candidate, kCount> kCandidates{
    {{{kLargest, kLargest, 8}, {117, 100, 100}, {100, 100, 100}},
     {{kLargest / 2, kLargest, 8}, {140, 112, 103}, {140, 105, 95}},
     {{64, 64, 32}, {140, 140, 140}, {140, 140, 140}},
     {{kSmallest, kSmallest, 64}, {200, 200, 200}, {200, 200, 200}}}};

// A candidate for a product: into how many pieces to cut K, and about how long it takes then, in
// products of a processor. All processors take the same number of tiles, or of pieces of tiles.
struct Cut {
  int64_t pieces = 1;
  bool joined = false; // tiles run across batches
  // The largest number: not considered, because much of the tiles would lie beyond the edges.
  int64_t duration = std::numeric_limits<int64_t>::max();
};

// What the choice depends on. `at_once` are processors.
struct Shape {
  int64_t m = 0, n = 0, k = 0, batch = 0, phases = 1, at_once = 1;
  bool is_convolution = false;
  bool joins = false;
  bool operator==(const Shape&) const = default;
};

int64_t tiles_of(const Shape& shape, const Strategy::Tile& tile) {
  return ceil_div(shape.m, tile.m) * ceil_div(shape.n, tile.n) * shape.batch * shape.phases;
}

// The cut into so many pieces.
Cut cut_into(int64_t pieces, const Shape& shape, const Candidate& candidate) {
  constexpr int64_t kOfElement = 48;       // products that take as long as to store and load a sum
  constexpr int64_t kOfDispatch = 400'000; // products that take as long as one more dispatch
  const Strategy::Tile& tile = candidate.tile;
  const int64_t of_sums =
      pieces == 1 ? 0
                  : kOfElement * (pieces + 1) * shape.batch * shape.m * shape.n / shape.at_once +
                        kOfDispatch;
  const int64_t each =
      std::max<int64_t>(ceil_div(tiles_of(shape, tile) * pieces, shape.at_once), 1);
  const auto& figures = shape.is_convolution ? candidate.of_convolutions : candidate.slowness;
  const int64_t slowness = figures[std::min<int64_t>(each, 3) - 1];
  const int64_t products = each * tile.m * tile.n * ceil_div(shape.k, pieces);
  return {.pieces = pieces, .duration = products * slowness / 100 + of_sums};
}

Cut best_cut(const Shape& shape, const Candidate& candidate) {
  constexpr int64_t kShortestPiece = 192;
  constexpr int64_t kMost = 6;                    // pieces where there are many tiles
  constexpr int64_t kMostSums = int64_t{1} << 25; // 128 MiB of them in all pieces
  const int64_t tiles = tiles_of(shape, candidate.tile);
  Cut best = cut_into(1, shape, candidate);
  const int64_t sums = std::max<int64_t>(shape.batch * shape.m * shape.n, 1);
  const int64_t most = std::min(shape.k / kShortestPiece, kMostSums / sums);
  // Phases take the place of pieces in a dispatch. With so many tiles all processors get about the
  // same number anyway.
  if (most < 2 || shape.phases > 1 || tiles >= 8 * shape.at_once || shape.at_once == 1) {
    return best;
  }
  const int64_t worthwhile = best.duration / 20 * 19; // sums take memory
  const auto consider = [&](int64_t pieces) {
    const Cut other = cut_into(std::min(pieces, most), shape, candidate);
    best = other.duration < std::min(best.duration, worthwhile) ? other : best;
  };
  for (int64_t pieces = 2; pieces <= kMost; ++pieces) {
    consider(pieces);
  }
  for (int64_t times = 1; times <= 3; ++times) {
    if (const int64_t pieces = times * shape.at_once / std::max<int64_t>(tiles, 1);
        pieces > kMost) {
      consider(pieces);
    }
  }
  return best;
}

// The candidates for a product. What was found for the last one is kept, because each row of the
// table asks, and then the launch.
class Choice {
public:
  static const Choice& of(const Product& product, const ShaderTarget& target) {
    thread_local Choice last{Shape{}};
    const Gemm& g = product.gemm;
    const Shape shape{.m = g.m,
                      .n = g.n,
                      .k = g.blocks * g.k,
                      .batch = g.batch,
                      .phases = g.conv != nullptr ? g.conv->phases.count : 1,
                      .at_once = processors(target),
                      .is_convolution = g.conv != nullptr,
                      .joins = can_join(product, kGroup)};
    if (shape != last.shape_) {
      last = Choice(shape);
    }
    return last;
  }

  // That of a row of the table, of the two of gemm_registers.wgsl the better one.
  size_t of_row(const Strategy& row) const {
    const size_t large = cuts_[kHalf].duration < cuts_[kFull].duration ? kHalf : kFull;
    const size_t small = row.tile.m == kSmallest ? kSmall : kMiddle;
    return row.tile.m == kLargest ? large : small;
  }
  bool is_considered(size_t candidate) const { return cuts_[candidate].duration != Cut().duration; }
  const Cut& cut(size_t candidate) const { return cuts_[candidate]; }
  // How many candidates take less time.
  int better(size_t candidate) const {
    return static_cast<int>(std::ranges::count_if(
        cuts_, [&](const Cut& cut) { return cut.duration < cuts_[candidate].duration; }));
  }

private:
  explicit Choice(const Shape& shape) : shape_(shape) {
    for (size_t i = 0; i < kCount; ++i) {
      const Strategy::Tile& tile = kCandidates[i].tile;
      const bool is_filled = shape.m * 4 >= tile.m * 3 && shape.n * 4 >= tile.n * 3;
      // Convolutions take these whether they are filled or not: no row has smaller ones for them.
      if (is_filled || i == kSmall || shape.is_convolution) {
        cuts_[i] = best_cut(shape, kCandidates[i]);
      }
    }
    if (shape.joins) {
      Shape joined = shape;
      joined.n *= joined.batch;
      joined.batch = 1;
      for (const size_t i : {kFull, kHalf}) {
        Cut cut = cut_into(1, joined, kCandidates[i]);
        cut.joined = true;
        cuts_[i] = cut.duration < cuts_[i].duration ? cut : cuts_[i];
      }
    }
  }

  Shape shape_;
  std::array<Cut, kCount> cuts_;
};

// Halves: subgroup matrices are faster where there are any, and on software adapters, which compile
// these kernels for seconds, gemm.wgsl unless there is much to compute.
bool suits(const Product& product, const ShaderTarget& target) {
  constexpr int64_t kMuch = int64_t{1} << 26;
  const Gemm& g = product.gemm;
  const bool pays = !is_software(target) || g.batch * g.m * g.n * g.k >= kMuch;
  return product.dtype == DType::kF32 || (pays && (g.conv != nullptr || !has_f16_matrices(target)));
}

// The tiles that take the shortest time, of equal ones the largest.
int cost(const Product& product, const Strategy& row, const ShaderTarget& target) {
  const Gemm& g = product.gemm;
  // A step of the smallest tile is 64 of K. gemm.wgsl's steps are shorter.
  const bool is_tiny = std::max(g.m, g.n) <= kSmallest && g.k <= kSmallest;
  if (g.conv != nullptr || is_tiny || !suits(product, target) ||
      (row.tile.m < kLargest && is_software(target))) {
    return 60;
  }
  const Choice& choice = Choice::of(product, target);
  const size_t own = choice.of_row(row);
  return choice.is_considered(own) ? 30 + choice.better(own) : 60;
}

Strategy::Division divide(const Product& product, const Strategy& row, const ShaderTarget& target) {
  const Choice& choice = Choice::of(product, target);
  const size_t own = choice.of_row(row);
  return {.tile = kCandidates[own].tile,
          .pieces = choice.cut(own).pieces,
          .rows = kCandidates[own].tile.m,
          .joined = choice.cut(own).joined};
}

// The operands and constants of grouped.wgsl. Whether groups of four in C are stored at once.
template <class Launch>
bool bind(Launch& launch, const ProductDispatch& dispatch) {
  const Product& product = dispatch.product;
  const bool halves = info(product.dtype).bytes == 2;
  const DType bits = halves ? DType::kBits64 : DType::kBits128;
  bind_operands(launch, dispatch, bits_of_c(dispatch), bits, bits);
  launch.bfloat(product.dtype == DType::kBF16);
  launch.a_along_k(product.a_along_k).b_along_k(product.b_along_k);
  launch.rolled(is_software(plan_target(*product.gemm.a.tensor)));
  return own_fours_of_c(launch, dispatch);
}

template <class Params, class Regions, class Launch>
void launch(Launch& launch, const ProductDispatch& dispatch) {
  const Gemm& g = dispatch.product.gemm;
  const bool d_in_c = dispatch.product.dtype == DType::kF32 && !dispatch.pieces &&
                      g.d.tensor != nullptr && g.d.offset == g.c.offset &&
                      same_buffer(*g.c.tensor, *g.d.tensor);
  const bool in_fours = bind(launch, dispatch);
  launch.d_in_c(d_in_c).blocked(g.blocks > 1).c_along_m(false).joined(dispatch.joined);
  Params p;
  set_matrices(p, dispatch);
  run<Regions>(launch, p, dispatch, {.d_in_c = d_in_c, .in_fours = in_fours});
}

// For gemm_registers.wgsl, whose loop takes two steps at a time.
bool has_whole_loops(const ProductDispatch& dispatch) {
  const Gemm& g = dispatch.product.gemm;
  return g.blocks == 1 && has_whole_steps(dispatch, kLoop) &&
         !is_software(plan_target(*g.a.tensor));
}

void launch_large(const ProductDispatch& dispatch, const Strategy&) {
  namespace kernel = kernels::gemm_registers;
  kernel::Launch command(dispatch.product.gemm.op);
  command.tile_rows(u32(dispatch.rows)).whole(has_whole_loops(dispatch));
  launch<kernel::Params, kernel::Regions>(command, dispatch);
}

void launch_small(const ProductDispatch& dispatch, const Strategy& row) {
  namespace kernel = kernels::gemm_registers_small;
  kernel::Launch command(dispatch.product.gemm.op);
  command.wide(row.tile.m > kSmallest);
  launch<kernel::Params, kernel::Regions>(command, dispatch);
}

} // namespace registers

// float16 and bfloat16 on subgroup matrices.
namespace matrix {

constexpr int64_t kBlock = 128; // the rows of a block of gemm_ranges.wgsl, and its part of K
constexpr int64_t kGroup = 8;   // 2-byte elements in 16 bytes
constexpr int64_t kStep = 32;   // of K

// Whether there is workgroup memory for these tiles, and for `further` bytes.
bool fits(const Product& product, DType dtype, const ShaderTarget& target, uint32_t further = 0) {
  constexpr uint32_t kStorage = (128 * 5 + 128 * 5) * 16; // of gemm_matrix.wgsl
  constexpr uint32_t kRanges = 96;                        // of gemm_windows.wgsl
  return has_matrices(product, dtype, target) &&
         target.max_workgroup_storage >=
             kStorage + further + (dtype == DType::kBF16 ? kRanges : 0) &&
         target.max_workgroup_invocations >= kernels::gemm_matrix::kWorkgroup;
}

bool accepts_f16(const Product& product, const Strategy&, const ShaderTarget& target) {
  return product.gemm.conv == nullptr && fits(product, DType::kF16, target);
}

// Its storage buffers are C, A, B, the ranges, D, the epilogue's, and so many copies.
bool accepts_bf16(const Product& product, uint32_t copies, const ShaderTarget& target) {
  const Gemm& g = product.gemm;
  uint32_t buffers = copies + (g.d.tensor != nullptr ? 5 : 4);
  if (g.fusion != nullptr) {
    buffers += g.fusion->buffers();
  }
  return g.conv == nullptr && fits(product, DType::kBF16, target) && g.blocks == 1 && g.k > 0 &&
         buffers <= target.max_storage_buffers;
}

bool accepts_bf16(const Product& product, const Strategy&, const ShaderTarget& target) {
  return accepts_bf16(product, 0, target);
}

// The fewest rows and columns of C that fill a tile of these kernels well. With fewer, matrices
// beside tiles without them (H200): equal with a K of 64, 1.5 times as fast with 512, 3 to 7 times
// with 1024 and more.
constexpr int64_t kFewRows = 64;

bool has_many_rows(const Gemm& g) { return std::min(g.m, g.n) >= kFewRows; }

// What does not lie in groups of eight is loaded element by element.
int cost_f16(const Product& product, const Strategy&, const ShaderTarget&) {
  constexpr int64_t kLongK = 128; // pays for the part of a tile that lies beyond the edges
  const Gemm& g = product.gemm;
  const int cost = has_many_rows(g) || g.blocks * g.k >= kLongK ? 20 : 55;
  return a_has_groups(product, 8) && b_has_groups(product, 8) ? cost : cost + 10;
}

// Tiles without matrices are faster than a pass over both operands and a product on matrices where
// there is less to compute.
int cost_bf16(const Product& product, const Strategy&, const ShaderTarget&) {
  constexpr int64_t kFewest = int64_t{1} << 27, kShortestK = 128;
  constexpr int64_t kFewestOfFewRows = int64_t{1} << 25, kShortestOfFewRows = 512;
  const Gemm& g = product.gemm;
  const int64_t products = g.batch * g.m * g.n * g.k;
  const bool pays = has_many_rows(g) ? products >= kFewest && g.k >= kShortestK
                                     : products >= kFewestOfFewRows && g.k >= kShortestOfFewRows &&
                                           std::max(g.m, g.n) >= kFewRows;
  return pays ? 20 : 55;
}

// Such tiles. They run across batches if the product may, if that saves tiles, and if there are
// enough of them without cutting K.
Strategy::Division joined_in(const Strategy::Tile& tile, const Product& product,
                             const ShaderTarget& target, bool joins) {
  Strategy::Division division = divide_in(tile, product, target);
  const Gemm& g = product.gemm;
  if (joins && g.n % tile.n != 0 &&
      count_tiles(tile, g.m, g.n, g.batch, true) >= division.enough_workgroups) {
    division.joined = true;
    division.pieces = 1;
  }
  return division;
}

// Tiles of 128 rows, or of 64 where they keep more of the device busy.
Strategy::Division divide_f16(const Product& product, const Strategy& row,
                              const ShaderTarget& target) {
  const Gemm& g = product.gemm;
  Strategy::Tile half = row.tile;
  half.m = 64;
  // Joined tiles are of float16, and K has at least one step (`whole` in gemm_matrix.wgsl).
  const bool joins = product.dtype == DType::kF16 && g.k >= kStep && can_join(product, kGroup);
  const auto tiles = [&](const Strategy::Tile& tile) {
    return count_tiles(tile, g.m, g.n, g.batch, joins);
  };
  if (g.conv != nullptr && g.conv->form == kernels::conv_product::Form::weight) {
    // Few tiles and a long K: as many pieces of it as run at once, which are two for each
    // processor. (H200, tiles of 64 rows: with three it took 75 us in place of 60.)
    constexpr int64_t kShortestPiece = 256;
    const Strategy::Tile& tile = g.m <= half.m ? half : row.tile;
    const int64_t most = std::max<int64_t>(g.k / kShortestPiece, 1);
    return {.tile = tile,
            .pieces = std::clamp<int64_t>(2 * processors(target) / tiles(tile), 1, most),
            .rows = tile.m};
  }
  if (g.m <= half.m) {
    return joined_in(half, product, target, joins);
  }
  if (g.conv != nullptr) {
    const bool are_few = tiles(row.tile) <= target.workgroups_to_fill / 16;
    return divide_in(are_few ? half : row.tile, product, target);
  }
  // A processor of an H200 has room for two tiles of 128 rows or three of 64, and needs about the
  // same time for the two as for the three.
  const auto rounds = [&](const Strategy::Tile& tile, int64_t at_once) {
    return ceil_div(tiles(tile), at_once * processors(target));
  };
  const Strategy::Division division = joined_in(half, product, target, joins);
  const bool is_cut = division.enough_workgroups > tiles(half);
  return !is_cut && rounds(half, 3) <= rounds(row.tile, 2)
             ? division
             : joined_in(row.tile, product, target, joins);
}

DType bits(bool grouped) { return grouped ? DType::kBits128 : DType::kBits16; }
DType bits_of_a(const Product& product) { return bits(a_has_groups(product, 8)); }
DType bits_of_b(const Product& product) { return bits(b_has_groups(product, 8)); }

// Binds A and B for a kernel that reads blocks of 128 rows or columns by 128 of K, and gives its
// parameters for them.
template <class Params, class Launch>
Params blocks_of(Launch& launch, const Product& product) {
  const Gemm& g = product.gemm;
  const auto blocks = [&](const MatrixView& view, int64_t rows) {
    return u32(g.batches_of(view) * ceil_div(rows, kBlock) * ceil_div(g.k, kBlock));
  };
  const auto a = g.a.range(g.batch, g.m, g.k);
  const auto b = g.b.range(g.batch, g.k, g.n);
  launch.a_range(a.buffer, a.begin, a.end, bits_of_a(product));
  launch.b_range(b.buffer, b.begin, b.end, bits_of_b(product));
  launch.a_along_k(product.a_along_k).b_along_k(product.b_along_k);
  return {.m = u32(g.m),
          .n = u32(g.n),
          .k = u32(g.k),
          .a_blocks = blocks(g.a, g.m),
          .b_blocks = blocks(g.b, g.n),
          .a_batch = u32(g.a.batch),
          .a_row = u32(g.a.row),
          .a_column = u32(g.a.column),
          .b_batch = u32(g.b.batch),
          .b_row = u32(g.b.row),
          .b_column = u32(g.b.column)};
}

// What the launches of gemm_matrix.wgsl and gemm_bf16.wgsl have in common, and the dispatch.
// `grouped`: what a tile loads lies in groups of eight.
template <class Regions, class Launch, class Params>
void run_tiles(Launch& launch, Params& p, const ProductDispatch& dispatch, bool grouped) {
  launch.tall(dispatch.rows == 128).joined(dispatch.joined).c_along_m(false);
  const bool ragged = grouped && has_ragged_end(dispatch, kStep);
  launch.ragged(ragged).whole(ragged || (grouped && has_whole_steps(dispatch, kStep)));
  const bool in_fours = own_fours_of_c(launch, dispatch);
  run<Regions>(launch, p, dispatch, {.in_fours = in_fours});
}

void launch_f16(const ProductDispatch& dispatch, const Strategy&) {
  namespace kernel = kernels::gemm_matrix;
  const Product& product = dispatch.product;
  kernel::Launch launch(product.gemm.op);
  bind_operands(launch, dispatch, bits_of_c(dispatch), bits_of_a(product), bits_of_b(product));
  launch.a_along_k(product.a_along_k).b_along_k(product.b_along_k).blocked(product.gemm.blocks > 1);
  kernel::Params p;
  set_matrices(p, dispatch);
  run_tiles<kernel::Regions>(launch, p, dispatch,
                             a_has_groups(product, kGroup) && b_has_groups(product, kGroup));
}

void launch_f16_copies(const ProductDispatch& dispatch, const Strategy&) {
  namespace kernel = kernels::gemm_matrix;
  const Gemm& g = dispatch.product.gemm;
  const auto [a, b] = product_halves(dispatch.product, {});
  kernel::Launch launch(g.op);
  bind_c(launch, dispatch, bits_of_c(dispatch));
  launch.a_as(DType::kBits128, a).b_as(DType::kBits128, b);
  launch.a_along_k(false).b_along_k(false).blocked(false);
  kernel::Params p;
  set_matrices(p, dispatch);
  p.a_row = p.b_column = 1;
  p.a_column = u32(a.size(-1));
  p.b_row = u32(b.size(-1));
  p.a_batch = g.a.batch != 0 ? p.a_column * p.k : 0;
  p.b_batch = g.b.batch != 0 ? p.b_row * p.k : 0;
  run_tiles<kernel::Regions>(launch, p, dispatch, true);
}

// Copies, if there are some, hold what lies in windows 0.
void launch_bf16(const ProductDispatch& dispatch, bool copies) {
  namespace kernel = kernels::gemm_bf16;
  const Product& product = dispatch.product;
  const at::Tensor ranges = product_ranges(product);
  kernel::Launch launch(product.gemm.op);
  bind_operands(launch, dispatch, bits_of_c(dispatch), bits_of_a(product), bits_of_b(product));
  launch.a_along_k(product.a_along_k).b_along_k(product.b_along_k).blocked(false);
  launch.ranges_range(buffer_of(ranges), 0, ranges.nbytes(), DType::kBits8);
  std::pair<at::Tensor, at::Tensor>
      halves; // Until the dispatch is appended, nobody else may write them.
  if (copies) {
    halves = product_halves(product, ranges);
    launch.a_halves_as(DType::kBits128, halves.first);
    launch.b_halves_as(DType::kBits128, halves.second);
  }
  kernel::Params p;
  set_matrices(p, dispatch);
  run_tiles<kernel::Regions>(launch, p, dispatch, copies);
}

void launch_bf16(const ProductDispatch& dispatch, const Strategy&) { launch_bf16(dispatch, false); }

void launch_bf16_copies(const ProductDispatch& dispatch, const Strategy&) {
  launch_bf16(dispatch, true);
}

// The sizes of an operand's copy in float16, with so many rows across K.
std::array<int64_t, 3> sizes_of_halves(const Gemm& g, const MatrixView& view, int64_t rows) {
  return {g.batches_of(view), g.k, ceil_div(rows, kGroup) * kGroup};
}

// Whether both operands have copies.
bool have_copies(const Gemm& g, const ShaderTarget& target) {
  return g.k > 0 && may_be_padded(g, g.a, g.m, /*along_k=*/false, kGroup, target) &&
         may_be_padded(g, g.b.transposed(), g.n, /*along_k=*/false, kGroup, target);
}

bool accepts_f16_copies(const Product& product, const Strategy& row, const ShaderTarget& target) {
  return accepts_f16(product, row, target) && have_copies(product.gemm, target);
}

bool accepts_bf16_copies(const Product& product, const Strategy&, const ShaderTarget& target) {
  return accepts_bf16(product, 2, target) && have_copies(product.gemm, target);
}

constexpr int kCostOfCopies = 15;
constexpr int kNoCopies = 60;

// A workgroup stores a step's matrices in its memory as they lie in the operands, and loads those
// along K slower. A copy pays for itself where each of its numbers is used in so many products, and
// there is much to compute (H200: 2048 cubed 70 us with copies and 68 without, 3072 cubed 268 and
// 280, 4096 x 1024 x 2816, rows x K x columns, 107 and 106).
int cost_f16_copies(const Product& product, const Strategy&, const ShaderTarget&) {
  constexpr int64_t kFewest = int64_t{1} << 34;
  constexpr int64_t kSide = 1536; // half of 3072
  const Gemm& g = product.gemm;
  // A number of A is used n times, and one of B m times.
  const bool pays = g.m * g.n * g.k >= kFewest && g.m * g.n >= kSide * (g.m + g.n);
  return pays && product.a_along_k && product.b_along_k ? kCostOfCopies : kNoCopies;
}

// Copies save the conversions of a number in each tile that reads it. On an H200 1024 cubed (nt)
// takes 36 us with them and 43 without, 4096 x 256 x 1024 (rows x K x columns, nn) 28.4 and 26.5.
int cost_bf16_copies(const Product& product, const Strategy&, const ShaderTarget&) {
  constexpr int64_t kLongK = 768;
  const Gemm& g = product.gemm;
  const int64_t fewest = int64_t{1} << (g.k >= kLongK ? 30 : 32);
  const bool pays = g.m * g.n * g.k >= fewest && std::min(g.m, g.n) >= 512;
  return pays ? kCostOfCopies : kNoCopies;
}

} // namespace matrix

// float32 as scaled float16 on subgroup matrices, where PyTorch is told that less precision will
// do.
namespace high {

// Whole steps, so that the kernel's loads have no tests.
int64_t padded_k(const Gemm& g) { return ceil_div(g.k, matrix::kStep) * matrix::kStep; }

// Bytes of an operand with so many rows across K in float16.
uint64_t bytes_in_halves(const Gemm& g, const MatrixView& view, int64_t rows) {
  return static_cast<uint64_t>(g.batches_of(view)) * rows * padded_k(g) * 2;
}

// torch.set_float32_matmul_precision and its relatives set this, whatever the device.
bool is_allowed() {
  const at::Float32Precision precision =
      at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL);
  return precision == at::Float32Precision::TF32 || precision == at::Float32Precision::BF16;
}

bool accepts(const Product& product, const Strategy& row, const ShaderTarget& target) {
  const Gemm& g = product.gemm;
  uint32_t buffers = g.d.tensor != nullptr ? 7 : 6;
  if (g.fusion != nullptr) {
    buffers += g.fusion->buffers();
  }
  const uint64_t largest = std::max(bytes_in_halves(g, g.a, g.m), bytes_in_halves(g, g.b, g.n));
  return is_plain(product, row, target) && g.k > 0 && matrix::fits(product, DType::kF32, target) &&
         buffers <= target.max_storage_buffers && largest <= BindingList::safe_reach(target) &&
         g.is_matmul && is_allowed();
}

// It passes over both operands twice before.
int cost(const Product& product, const Strategy&, const ShaderTarget&) {
  constexpr int64_t kFewest = int64_t{1} << 30;
  const Gemm& g = product.gemm;
  const bool pays = g.batch * g.m * g.n * g.k >= kFewest;
  return pays && std::min({g.m, g.n, g.k}) >= 128 ? 20 : 65;
}

// One operand in float16, with strides across K and along it. Its scales start at `first`.
at::Tensor scale(const Gemm& g, const MatrixView& view, int64_t rows, bool along_k,
                 const at::Tensor& scales, int64_t first) {
  namespace kernel = kernels::gemm_scale;
  const int64_t batches = g.batches_of(view);
  at::Tensor halves = empty_webgpu({batches, rows, padded_k(g)}, at::kHalf, g.a.tensor->device());
  kernel::Launch launch(g.op);
  launch.out_as(DType::kBits32, halves).scales(scales);
  const auto range = view.range(g.batch, rows, g.k);
  launch.in_range(range.buffer, range.begin, range.end, DType::kF32);
  launch.along_k(along_k);
  launch.run({.batches = u32(batches),
              .rows = u32(rows),
              .k = u32(g.k),
              .k_padded = u32(padded_k(g)),
              .in_batch = u32(view.batch),
              .in_row = u32(view.row),
              .in_k = u32(view.column),
              .first = u32(first)});
  return halves;
}

void launch(const ProductDispatch& dispatch, const Strategy&) {
  namespace kernel = kernels::gemm_high;
  const Product& product = dispatch.product;
  const Gemm& g = product.gemm;
  const int64_t of_a = g.batches_of(g.a) * g.m;
  const int64_t of_b = g.batches_of(g.b) * g.n;
  const at::Tensor scales = empty_webgpu({of_a + of_b}, at::kFloat, g.a.tensor->device());
  const at::Tensor a = scale(g, g.a, g.m, product.a_along_k, scales, 0);
  const at::Tensor b = scale(g, g.b.transposed(), g.n, product.b_along_k, scales, of_a);
  kernel::Launch launch(g.op);
  const std::optional<DType> c_bits = bits_of_c(dispatch);
  bind_c(launch, dispatch, c_bits);
  launch.a_as(DType::kBits128, a).b_as(DType::kBits128, b).scales(scales);
  const auto left = g.a.range(g.batch, g.m, g.k);
  const auto right = g.b.range(g.batch, g.k, g.n);
  launch.left_range(left.buffer, left.begin, left.end, DType::kF32);
  launch.right_range(right.buffer, right.begin, right.end, DType::kF32);
  launch.a_along_k(true).b_along_k(true).blocked(false);
  launch.tall(dispatch.rows == 128).joined(false).whole(true).ragged(false).c_along_m(false);
  kernel::Params p;
  set_matrices(p, dispatch);
  p.k = u32(padded_k(g));
  p.a_row = p.b_column = p.k;
  p.a_batch = g.a.batch != 0 ? p.a_row * p.m : 0;
  p.b_batch = g.b.batch != 0 ? p.b_column * p.n : 0;
  p.a_column = p.b_row = 1;
  p.left_batch = u32(g.a.batch);
  p.left_row = u32(g.a.row);
  p.left_column = u32(g.a.column);
  p.right_batch = u32(g.b.batch);
  p.right_row = u32(g.b.row);
  p.right_column = u32(g.b.column);
  p.depth = u32(g.k);
  p.right_scales = u32(of_a);
  run<kernel::Regions>(launch, p, dispatch, {.in_fours = c_bits.has_value()});
}

} // namespace high

// ---- Convolutions with groups of channels

// What is too small does not pay for copies with the channels innermost.
int cost_of_groups(const Product& product, int64_t least_m, int64_t least_n, int cost) {
  constexpr int64_t kLeastWork = int64_t{1} << 24;
  const Gemm& g = product.gemm;
  return g.m >= least_m && g.n >= least_n && g.m * g.n * g.k >= kLeastWork ? cost : 70;
}

constexpr uint32_t kColumnPlaces = 128 * 4; // bytes of `column_places` of conv_columns.wgsl

bool is_convolution_matrix_f16(const Product& product, const Strategy&,
                               const ShaderTarget& target) {
  return is_grouped_convolution(product) &&
         matrix::fits(product, DType::kF16, target, kColumnPlaces);
}

// What conv_steps.wgsl asks for.
bool has_whole_taps(const Gemm& g, int64_t step) {
  constexpr uint32_t kMostTaps = 30; // bits of a word, less those for two steps behind the last
  const Convolution& conv = *g.conv;
  return conv.form != kernels::conv_product::Form::weight &&
         (conv.form != kernels::conv_product::Form::input || !conv.strided ||
          conv.phases.count > 1) &&
         conv.params.channels[0] % step == 0 && conv.params.tap_volume[0] <= kMostTaps;
}

// Whether each phase has taps, whose channels are whole numbers of such steps.
bool has_whole_phases(const Gemm& g, int64_t step) {
  const Convolution& conv = *g.conv;
  const auto& stride = conv.params.stride;
  bool all = conv.phases.count > 1 && conv.params.channels[0] % step == 0;
  for (size_t d = 0; d < 3; ++d) {
    all = all && conv.phases.step[d] == stride[d] && conv.phases.taps[d] >= stride[d];
  }
  return all;
}

int cost_of_convolution_matrix_f16(const Product& product, const Strategy&, const ShaderTarget&) {
  return cost_of_groups(product, 32, 64, 25);
}

void launch_convolution_matrix_f16(const ProductDispatch& dispatch, const Strategy& row) {
  namespace kernel = kernels::conv_matrix;
  const Product& product = dispatch.product;
  const Gemm& g = product.gemm;
  kernel::Launch launch(g.op);
  bind_operands(launch, dispatch, bits_of_c(dispatch), DType::kBits128, DType::kBits128);
  launch.a_along_k(product.a_along_k).b_along_k(product.b_along_k).blocked(false);
  launch.tall(dispatch.rows == 128).c_along_m(is_along_m(dispatch));
  launch.form(static_cast<kernel::Form>(g.conv->form)).strided(g.conv->strided);
  launch.phased(g.conv->phases.count > 1);
  // Convolutions with tiles of 64 rows were slower so (H200).
  const bool has_taps = dispatch.rows == 128 && has_whole_taps(g, row.tile.k);
  launch.whole_taps(has_taps).ragged(false).joined(false);
  launch.whole(has_taps || has_whole_steps(dispatch, row.tile.k));
  own_fours_of_c(launch, dispatch);
  kernel::Params p;
  set_groups(p, dispatch);
  set_matrices(p, dispatch);
  run<kernel::Regions>(launch, p, dispatch);
}

bool is_convolution_registers(const Product& product, const Strategy& row,
                              const ShaderTarget& target) {
  return is_grouped_convolution(product) && registers::fits(product, row, target, kColumnPlaces);
}

int cost_of_convolution_registers(const Product& product, const Strategy&,
                                  const ShaderTarget& target) {
  return registers::suits(product, target) ? cost_of_groups(product, 48, 48, 35) : 70;
}

void launch_convolution_registers(const ProductDispatch& dispatch, const Strategy&) {
  namespace kernel = kernels::conv_registers;
  const Gemm& g = dispatch.product.gemm;
  kernel::Launch launch(g.op);
  const bool in_fours = registers::bind(launch, dispatch);
  launch.blocked(false).joined(false).d_in_c(false).c_along_m(is_along_m(dispatch));
  launch.form(static_cast<kernel::Form>(g.conv->form)).strided(g.conv->strided);
  launch.phased(g.conv->phases.count > 1);
  const bool has_taps = has_whole_taps(g, registers::kStep);
  const bool has_phases =
      has_taps && has_whole_phases(g, registers::kLoop) && !is_software(plan_target(*g.a.tensor));
  launch.whole_taps(has_taps).tile_rows(u32(dispatch.rows));
  launch.whole(has_phases || registers::has_whole_loops(dispatch));
  kernel::Params p;
  set_groups(p, dispatch);
  set_matrices(p, dispatch);
  run<kernel::Regions>(launch, p, dispatch, {.in_fours = in_fours});
}

// ---- Lines of images in aligned groups of four

namespace fours {

constexpr int64_t kGroup = 4; // elements, and neighbours along the width of an invocation

// Whether each line of B consists of whole aligned groups.
bool has_groups_of_b(const Gemm& g) {
  const auto& conv = g.conv->params;
  // Of a dimension with one element the stride may be anything.
  const auto fits = [&](int d) { return conv.b_sizes[d] == 1 || conv.b_strides[d] % kGroup == 0; };
  return conv.b_strides[2] == 1 && conv.b_sizes[2] % kGroup == 0 && fits(0) && fits(1) &&
         in_units(kGroup, {conv.b_image, conv.b_channel, g.b.offset, g.b.batch});
}

// The same for A where its columns are positions, in the gradient of the weight.
bool has_groups_of_a(const Gemm& g) {
  const auto& conv = g.conv->params;
  return g.a.column == 1 && conv.position_row[0] % kGroup == 0 &&
         in_units(kGroup, {conv.a_outer, g.a.offset, g.a.row, g.a.batch});
}

// How an operand is bound that is loaded in groups.
std::optional<DType> bits(const Product& product, bool in_groups) {
  if (!in_groups) {
    return std::nullopt;
  }
  return info(product.dtype).bytes == 2 ? DType::kBits64 : DType::kBits128;
}

// The place of element `place` of a line in its group. `place` may be negative.
uint32_t shift(int64_t place) { return static_cast<uint32_t>(place) % kGroup; }

} // namespace fours

// ---- Convolutions with few rows or short sums

namespace few {

constexpr int64_t kInvocations = kernels::conv_few::kWorkgroup;
constexpr int64_t kSquareInvocations = kernels::conv_squares::kWorkgroup;
constexpr int64_t kCapacity = 512; // of the kernels: groups of rows and taps

bool is_input(const Gemm& g) { return g.conv->form == kernels::conv_product::Form::input; }

// How many positions of x, or groups of rows, an invocation computes: 1, 2 or 4. 0: the kernel
// does not take this stride.
int64_t groups(const Gemm& g) {
  if (!is_input(g)) {
    return g.m <= 4 ? 1 : g.m <= 8 ? 2 : 4;
  }
  const auto& stride = g.conv->params.stride;
  const auto& dilation = g.conv->params.dilation;
  const auto is_pair = [&](int d) {
    constexpr uint32_t kMostTaps = 16; // of conv_squares.wgsl
    return stride[d] == 2 && dilation[d] == 1 && g.conv->few.taps[d] <= kMostTaps;
  };
  if (stride[0] != 1 || (stride[1] != 1 && !is_pair(1)) || (stride[2] != 1 && !is_pair(2)) ||
      (stride[1] == 2 && stride[2] == 1)) {
    return 0;
  }
  return stride[1] * stride[2];
}

bool has_squares(const Gemm& g) { return is_input(g) && groups(g) > 1; }

int64_t rows(const Gemm& g) { return g.m == 1 ? 1 : 4; }

int64_t rows_of_workgroup(const Gemm& g) { return rows(g) * (is_input(g) ? 1 : groups(g)); }

// Of one channel that is summed up: what is staged.
int64_t staged(const Gemm& g) {
  return g.conv->few.taps[0] * g.conv->few.taps[1] * int64_t{g.conv->few.taps[2]} *
         (is_input(g) ? 1 : groups(g));
}

bool accepts(const Product& product, const Strategy& row, const ShaderTarget& target) {
  const Gemm& g = product.gemm;
  return is_convolution(product, row, target) &&
         g.conv->form != kernels::conv_product::Form::weight &&
         info(product.dtype).kind == Kind::kFloat && groups(g) != 0 && staged(g) <= kCapacity &&
         target.max_workgroup_storage >= kCapacity * 16 &&
         target.max_workgroup_invocations >= kInvocations;
}

// Called for products that the kernel does not take, too.
int cost(const Product& product, const Strategy&, const ShaderTarget& target) {
  constexpr int64_t kFewSummed = 4;
  const Gemm& g = product.gemm;
  if (g.conv == nullptr || g.conv->grouped || g.conv->few.columns < kInvocations / 2) {
    return kNever;
  }
  const int64_t blocks = ceil_div(g.m, rows_of_workgroup(g));
  constexpr int64_t kLeastOfSquares = 32; // columns of a workgroup of slices
  const int64_t columns = has_squares(g) ? kLeastOfSquares : kInvocations;
  const int64_t workgroups = ceil_div(g.conv->few.columns, columns) * blocks * g.batch;
  // Neighbouring invocations would read lines of the cache of their own.
  const bool apart = g.conv->params.b_channel == 1 && g.conv->few.channels > kFewSummed;
  if (apart || workgroups < target.workgroups_to_fill / 16) {
    return kNever;
  }
  if (blocks == 1) {
    return g.m <= 4 ? 0 : 34;
  }
  const bool short_sums = g.conv->few.channels <= kFewSummed && g.m <= 64;
  return short_sums && !is_input(g) ? 34 : kNever;
}

// What these kernels count as columns: groups of neighbouring lines, and of neighbours along the
// width. The last ones of a plane or a line may be partly beyond its edge.
struct Groups {
  std::array<uint32_t, 4> volume, plane, row; // divisors
  int64_t columns;
};

// Of a plane.
int64_t count_groups(const Convolution::Few& few, int64_t high, int64_t wide) {
  const int64_t width = few.row[0];
  return ceil_div(few.plane[0] / width, high) * ceil_div(width, wide);
}

// Of all planes of all images.
int64_t count_all_groups(const Convolution::Few& few, int64_t high, int64_t wide) {
  return few.columns / int64_t{few.plane[0]} * count_groups(few, high, wide);
}

Groups in_groups(const Convolution::Few& few, int64_t high, int64_t wide) {
  const int64_t plane = count_groups(few, high, wide);
  const int64_t depth = few.volume[0] / few.plane[0];
  return {.volume = divisor_words(u32(depth * plane)),
          .plane = divisor_words(u32(plane)),
          .row = divisor_words(u32(ceil_div<int64_t>(few.row[0], wide))),
          .columns = count_all_groups(few, high, wide)};
}

// Lines that an invocation of conv_planes.wgsl computes: 1, 2 or 4, as many as leave enough
// workgroups. 0: that kernel does not take the product.
int64_t lines_of_planes(const Gemm& g, const ShaderTarget& target) {
  const auto& conv = g.conv->params;
  const auto& few = g.conv->few;
  const auto workgroups = [&](int64_t high) {
    return ceil_div(count_all_groups(few, high, fours::kGroup), kInvocations) * g.batch;
  };
  if (rows(g) != 1 || groups(g) != 1 || conv.stride[2] != 1 || conv.dilation[2] != 1 ||
      few.sizes[2] < fours::kGroup || workgroups(1) < target.workgroups_to_fill / 16) {
    return 0;
  }
  if (conv.stride[1] != 1 || conv.dilation[1] != 1) {
    return 1;
  }
  int64_t high = 4;
  while (high > 1 && (few.sizes[1] < high || workgroups(high) < target.workgroups_to_fill / 2)) {
    high /= 2;
  }
  return high;
}

// Whether four neighbours in C always fill whole words, or 16 bytes of float32.
bool has_groups_of_c(const Gemm& g) {
  const int64_t unit = g.c.tensor->element_size() == 2 ? 2 : fours::kGroup;
  return g.c.column == 1 && g.conv->few.sizes[2] % fours::kGroup == 0 &&
         in_units(unit, {g.conv->params.c_outer, g.c.offset, g.c.row, g.c.batch});
}

Strategy::Division divide(const Product& product, const Strategy&, const ShaderTarget&) {
  return {.tile = {rows_of_workgroup(product.gemm), kInvocations, 1}, .enough_workgroups = 1};
}

// What the parameters of the kernels of few rows have in common.
template <typename Params>
Params params_of(const ProductDispatch& dispatch, const Groups& grid, int64_t columns_together) {
  const Gemm& g = dispatch.product.gemm;
  const Convolution& conv = *g.conv;
  Params p;
  set_places(p, conv.params);
  set_matrices(p, dispatch);
  p.grid_volume = grid.volume;
  p.grid_plane = grid.plane;
  p.grid_row = grid.row;
  p.sizes = conv.few.sizes;
  p.summed = u32(conv.few.channels);
  p.chunk = u32(kCapacity / staged(g));
  p.a_channel = u32(conv.few.channel_stride);
  p.n = u32(grid.columns);
  p.tiles_n = u32(ceil_div(grid.columns, columns_together));
  p.c_outer = conv.params.c_outer;
  return p;
}

// Pairs or squares of positions of x, of a convolution with stride 2.
void launch_squares(const ProductDispatch& dispatch) {
  namespace kernel = kernels::conv_squares;
  constexpr int64_t kSlices = 8;
  const Gemm& g = dispatch.product.gemm;
  const Convolution& conv = *g.conv;
  const Groups twos = in_groups(conv.few, 1, 2);
  const bool triple = g.m == 2 || g.m == 3;
  const int64_t rows = g.m == 1 ? 1 : triple ? 3 : 4;
  const int64_t workgroups =
      ceil_div(twos.columns, kSquareInvocations) * ceil_div(g.m, rows) * g.batch;
  const bool sliced = workgroups < plan_target(*g.a.tensor).workgroups_to_fill / 8;
  const int64_t columns = sliced ? kSquareInvocations / kSlices : kSquareInvocations;
  kernel::Launch launch(g.op);
  bind_operands(launch, dispatch);
  launch.form(static_cast<kernel::Form>(conv.form)).strided(conv.strided);
  launch.pairs(groups(g) == 2).sliced(sliced).single(rows == 1).triple(triple);
  launch.taps_y(conv.few.taps[1]).taps_z(conv.few.taps[2]);
  auto p = params_of<kernel::Params>(dispatch, twos, columns);
  p.planes = conv.few.taps[0];
  run<kernel::Regions>(launch, p, dispatch);
}

// Four neighbours along the width, in `high` lines.
void launch_planes(const ProductDispatch& dispatch, int64_t high) {
  namespace kernel = kernels::conv_planes;
  constexpr uint32_t kMostTaps = 8; // of a line, at a time
  const Product& product = dispatch.product;
  const Gemm& g = product.gemm;
  const Convolution& conv = *g.conv;
  const uint32_t taps = std::min(conv.few.taps[2], kMostTaps);
  const bool b_in_groups = fours::has_groups_of_b(g);
  const bool c_in_groups = has_groups_of_c(g);
  const bool halves = g.c.tensor->element_size() == 2;
  const int64_t padding = conv.params.padding[2];
  kernel::Launch launch(g.op);
  bind_operands(launch, dispatch, fours::bits(product, c_in_groups && !halves), {},
                fours::bits(product, b_in_groups));
  if (c_in_groups && halves) {
    launch.own_words_of_c();
  }
  launch.form(static_cast<kernel::Form>(conv.form)).strided(conv.strided);
  launch.taps_z(taps).is_long(conv.few.taps[2] > kMostTaps);
  launch.high(high == 1 ? kernel::High::one : high == 2 ? kernel::High::two : kernel::High::four);
  launch.bfloat(b_in_groups && product.dtype == DType::kBF16);
  launch.shift(b_in_groups ? fours::shift(is_input(g) ? padding - taps + 1 : -padding) : 0);
  auto p =
      params_of<kernel::Params>(dispatch, in_groups(conv.few, high, fours::kGroup), kInvocations);
  p.taps = conv.few.taps;
  run<kernel::Regions>(launch, p, dispatch, {.in_fours = c_in_groups});
}

void launch(const ProductDispatch& dispatch, const Strategy&) {
  const Gemm& g = dispatch.product.gemm;
  const ShaderTarget& target = plan_target(*g.a.tensor);
  if (has_squares(g)) {
    launch_squares(dispatch);
    return;
  }
  if (const int64_t high = lines_of_planes(g, target); high > 0) {
    launch_planes(dispatch, high);
    return;
  }
  namespace kernel = kernels::conv_few;
  const Convolution& conv = *g.conv;
  const int64_t count = groups(g);
  kernel::Launch launch(g.op);
  bind_operands(launch, dispatch);
  launch.form(static_cast<kernel::Form>(conv.form)).strided(conv.strided);
  launch.single(rows(g) == 1).two(count >= 2).four(count == 4);
  launch.alone(!is_input(g) && is_software(target));
  const Groups each{conv.few.volume, conv.few.plane, conv.few.row, conv.few.columns};
  auto p = params_of<kernel::Params>(dispatch, each, kInvocations);
  p.taps = conv.few.taps;
  run<kernel::Regions>(launch, p, dispatch);
}

} // namespace few

// Of a convolution's weight.
int64_t taps_of_line(const Gemm& g) { return g.conv->params.tap_row[0]; }

// Of weight gradients, K in pieces of whole lines of positions: about `wanted`, and so many that
// each of a workgroup's `parts` still has a few groups of `neighbours` positions.
Strategy::Division in_lines(const Gemm& g, int64_t columns, int64_t neighbours, int64_t parts,
                            int64_t wanted) {
  constexpr int64_t kShortest = 16; // a step of K, for gemm()
  constexpr int64_t kLeast = 2;     // groups
  const int64_t width = g.conv->params.position_row[0];
  const int64_t groups = g.k / width * ceil_div(width, neighbours);
  const int64_t most = std::max<int64_t>(groups / (parts * kLeast), 1);
  return {.tile = {1, columns, ceil_div(kShortest, width) * width},
          .pieces = std::clamp<int64_t>(wanted, 1, most)};
}

// Divisors for groups of neighbouring positions along a line.
template <class Params>
void set_groups_of_positions(Params& p, const kernels::conv_product::Params& conv,
                             int64_t neighbours) {
  const uint32_t width = conv.position_row[0];
  const auto groups = u32(ceil_div<int64_t>(width, neighbours));
  p.grid_volume = divisor_words(conv.position_volume[0] / width * groups);
  p.grid_plane = divisor_words(conv.position_plane[0] / width * groups);
  p.grid_row = divisor_words(groups);
}

// ---- Gradients of weights with few filters in each group, such as depthwise ones

namespace taps {

constexpr int64_t kMostTaps = 8; // of a line of the weight
constexpr int64_t kMostRows = 4;

bool accepts(const Product& product, const Strategy& row, const ShaderTarget& target) {
  const Gemm& g = product.gemm;
  constexpr uint32_t kStorage = kernels::conv_taps::kWorkgroup * 32;
  return is_convolution(product, row, target) &&
         g.conv->form == kernels::conv_product::Form::weight &&
         info(product.dtype).kind == Kind::kFloat && taps_of_line(g) <= kMostTaps &&
         target.max_workgroup_storage >= kStorage &&
         target.max_workgroup_invocations >= kernels::conv_taps::kWorkgroup;
}

// Called for products that the kernel does not take, too.
int cost(const Product& product, const Strategy&, const ShaderTarget& target) {
  const Gemm& g = product.gemm;
  // Of an invocation's sums, below which adding them up costs more than it saves.
  const int64_t shortest = is_software(target) ? 16 : 1;
  const bool is_long = g.k >= shortest * kernels::conv_taps::kWorkgroup;
  return g.conv != nullptr && g.m <= kMostRows && is_long ? 0 : kNever;
}

int64_t lines_of(const Gemm& g) { return g.n / taps_of_line(g); }

// Lines of taps of a workgroup: as many as an H200's registers hold sums for.
int64_t lines_together(const Gemm& g) {
  const int64_t most = taps_of_line(g) > 5 ? 2 : 3;
  return ceil_div(lines_of(g), ceil_div(lines_of(g), most));
}

// Whether an invocation takes neighbours that share elements of x.
bool is_wide(const Gemm& g) {
  return g.conv->params.dilation[2] == 1 && g.conv->params.stride[2] <= 2;
}

int64_t neighbours(const Gemm& g) { return is_wide(g) ? fours::kGroup : 1; }

Strategy::Division divide(const Product& product, const Strategy&, const ShaderTarget& target) {
  const Gemm& g = product.gemm;
  const int64_t blocks = ceil_div(lines_of(g), lines_together(g)) * g.m * g.batch;
  return in_lines(g, taps_of_line(g) * lines_together(g), neighbours(g),
                  kernels::conv_taps::kWorkgroup, ceil_div(8 * processors(target), blocks));
}

void launch(const ProductDispatch& dispatch, const Strategy&) {
  namespace kernel = kernels::conv_taps;
  const Product& product = dispatch.product;
  const Gemm& g = product.gemm;
  const auto& conv = g.conv->params;
  const bool wide = is_wide(g);
  const bool a_in_groups = wide && fours::has_groups_of_a(g);
  // With more taps, loads one by one are faster (H200: 5 x 5 taps 98 us, in groups 138).
  constexpr int64_t kMostTapsOfGroups = 4;
  const bool b_in_groups =
      wide && taps_of_line(g) <= kMostTapsOfGroups && fours::has_groups_of_b(g);
  kernel::Launch launch(g.op);
  bind_operands(launch, dispatch, {}, fours::bits(product, a_in_groups),
                fours::bits(product, b_in_groups));
  launch.form(static_cast<kernel::Form>(g.conv->form)).strided(g.conv->strided);
  launch.taps_z(u32(taps_of_line(g)));
  launch.together(static_cast<kernel::Together>(lines_together(g) - 1));
  launch.wide(wide).step_z(wide ? conv.stride[2] : 1);
  launch.bfloat((a_in_groups || b_in_groups) && product.dtype == DType::kBF16);
  launch.shift(b_in_groups ? fours::shift(-int64_t{conv.padding[2]}) : 0);
  kernel::Params p;
  set_places(p, conv);
  set_matrices(p, dispatch);
  set_groups_of_positions(p, conv, neighbours(g));
  p.a_outer = conv.a_outer;
  run<kernel::Regions>(launch, p, dispatch);
}

} // namespace taps

// ---- Depthwise convolutions where the channels of images are innermost

namespace depthwise {

constexpr int64_t kInvocations = kernels::conv_depthwise::kWorkgroup;
constexpr int64_t kWide = 4; // positions along the width of an invocation

int64_t lanes(const Gemm& g) { return 16 / static_cast<int64_t>(g.a.tensor->element_size()); }

// Of channels.
int64_t vectors_of(const Gemm& g) { return g.batch / lanes(g); }

// Invocations of a workgroup with different channels.
int64_t across(const Gemm& g) {
  constexpr int64_t kMostChannels = 32;
  const int64_t vectors = std::min(kMostChannels / lanes(g), vectors_of(g));
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(vectors)));
}

int64_t blocks_of_channels(const Gemm& g) { return ceil_div(vectors_of(g), across(g)); }

int64_t lines_of_taps(const Gemm& g) {
  return g.conv->params.tap_plane[0] / g.conv->params.tap_row[0];
}

bool is_weight(const Gemm& g) { return g.conv->form == kernels::conv_product::Form::weight; }

bool has_one_channel(const Gemm& g) {
  const int64_t summed = is_weight(g) ? g.n : g.k;
  return g.m == 1 && summed == g.conv->params.tap_volume[0];
}

bool accepts(const Product& product, const Strategy& row, const ShaderTarget& target) {
  constexpr uint32_t kMostTaps = 7;
  constexpr uint32_t kStorage = 12288;
  const Gemm& g = product.gemm;
  if (!is_convolution(product, row, target) || info(product.dtype).kind != Kind::kFloat ||
      !has_one_channel(g) || g.c.tensor->scalar_type() != g.a.tensor->scalar_type() ||
      g.b.tensor->numel() == 0 || !lie_in_bindings(g, target) ||
      target.max_workgroup_storage < kStorage || target.max_workgroup_invocations < kInvocations) {
    return false;
  }
  const auto& conv = g.conv->params;
  const bool is_flat =
      conv.tap_volume[0] == conv.tap_plane[0] && conv.stride[0] == 1 && conv.padding[0] == 0;
  if (!is_flat || conv.tap_row[0] > kMostTaps || lines_of_taps(g) > kMostTaps ||
      conv.stride[1] > 2 || conv.stride[2] > 2 || conv.dilation[1] != 1 || conv.dilation[2] != 1) {
    return false;
  }
  const MatrixView& counted = is_weight(g) ? g.a : g.c; // whose positions are counted
  const int64_t outer = is_weight(g) ? conv.a_outer : conv.c_outer;
  const int64_t positions = conv.position_volume[0];
  const int64_t images = (is_weight(g) ? g.k : g.n) / positions;
  // Of a dimension with one element the stride may be anything.
  const auto fits = [&](int64_t stride, int64_t size) {
    return size == 1 || stride % lanes(g) == 0;
  };
  for (int d = 0; d < 3; ++d) {
    if (!fits(conv.b_strides[d], conv.b_sizes[d])) {
      return false;
    }
  }
  return conv.b_channel == 1 && counted.batch == 1 && fits(conv.b_image, images) &&
         fits(outer, images) && fits(counted.column, positions) &&
         in_units(lanes(g), {g.batch, g.b.offset, counted.offset});
}

// Called for products that the kernels do not take, too.
int cost(const Product& product, const Strategy&, const ShaderTarget&) {
  const Gemm& g = product.gemm;
  return g.conv != nullptr && !g.conv->grouped && has_one_channel(g) ? 0 : kNever;
}

// Lines of positions that an invocation computes: two where a group of positions must start at a
// multiple of a stride of 2, and for float32, where registers hold the sums of 2 x 4 vectors.
int64_t high(const Gemm& g) {
  const auto& conv = g.conv->params;
  const bool in_pairs = g.conv->form == kernels::conv_product::Form::input && conv.stride[1] == 2;
  return in_pairs || (lanes(g) == 4 && g.conv->few.sizes[1] > 1) ? 2 : 1;
}

void launch(const ProductDispatch& dispatch, const Strategy&) {
  namespace kernel = kernels::conv_depthwise;
  const Gemm& g = dispatch.product.gemm;
  const Convolution& conv = *g.conv;
  const std::array<uint32_t, 4>& sizes = conv.few.sizes;
  const auto lines = u32(ceil_div<int64_t>(sizes[1], high(g)));
  const auto groups = u32(ceil_div<int64_t>(sizes[2], kWide));
  const bool is_input = conv.form == kernels::conv_product::Form::input;
  const auto odd = [&](int d) {
    return is_input ? conv.params.padding[d] % conv.params.stride[d] : 0;
  };
  kernel::Launch launch(g.op);
  bind_operands(launch, dispatch, DType::kBits128, {}, DType::kBits128);
  launch.form(static_cast<kernel::Form>(conv.form)).strided(conv.strided);
  launch.dtype(vector_dtype<kernel::Dtype>(*g.a.tensor));
  launch.taps_y(conv.few.taps[1]).taps_z(conv.few.taps[2]);
  launch.step_y(conv.params.stride[1]).step_z(conv.params.stride[2]);
  launch.odd_y(odd(1)).odd_z(odd(2));
  launch.two(high(g) == 2).across(u32(across(g)));
  kernel::Params p;
  set_places(p, conv.params);
  set_matrices(p, dispatch);
  p.grid_volume = divisor_words(sizes[0] * lines * groups);
  p.grid_plane = divisor_words(lines * groups);
  p.grid_row = divisor_words(groups);
  p.sizes = sizes;
  p.vectors = u32(vectors_of(g));
  p.n = u32(g.n / (int64_t{sizes[0]} * sizes[1] * sizes[2]) * p.grid_volume[0]);
  p.tiles_m = u32(blocks_of_channels(g));
  p.tiles_n = u32(ceil_div<int64_t>(p.n, kInvocations / across(g)));
  p.c_outer = conv.params.c_outer;
  run<kernel::Regions>(launch, p, dispatch);
}

// Lines of taps that an invocation adds up: as many as the registers of an H200 hold the sums of.
// Halves are unpacked into further registers.
int64_t lines_together(const Gemm& g) {
  const int64_t sums = lanes(g) == 4 ? 56 : 36; // float32 numbers
  const int64_t lines = lines_of_taps(g);
  const int64_t most = std::clamp<int64_t>(sums / (taps_of_line(g) * lanes(g)), 1, 3);
  return ceil_div(lines, ceil_div(lines, std::min(most, lines)));
}

int64_t blocks_of_lines(const Gemm& g) { return ceil_div(lines_of_taps(g), lines_together(g)); }

Strategy::Division divide_weight(const Product& product, const Strategy&,
                                 const ShaderTarget& target) {
  const Gemm& g = product.gemm;
  const int64_t blocks = blocks_of_channels(g) * blocks_of_lines(g);
  return in_lines(g, taps_of_line(g) * lines_together(g), kWide, kInvocations / across(g),
                  ceil_div(4 * processors(target), blocks));
}

void launch_weight(const ProductDispatch& dispatch, const Strategy&) {
  namespace kernel = kernels::conv_depthwise_weight;
  const Gemm& g = dispatch.product.gemm;
  const auto& conv = g.conv->params;
  kernel::Launch launch(g.op);
  bind_operands(launch, dispatch, {}, DType::kBits128, DType::kBits128);
  launch.form(static_cast<kernel::Form>(g.conv->form)).strided(g.conv->strided);
  launch.dtype(vector_dtype<kernel::Dtype>(*g.a.tensor));
  launch.taps_z(u32(taps_of_line(g)));
  launch.together(static_cast<kernel::Together>(lines_together(g) - 1));
  launch.step_z(conv.stride[2]).across(u32(across(g)));
  kernel::Params p;
  set_places(p, conv);
  set_matrices(p, dispatch);
  set_groups_of_positions(p, conv, kWide);
  p.lines = u32(lines_of_taps(g));
  p.vectors = u32(vectors_of(g));
  p.tiles_m = u32(blocks_of_channels(g));
  p.tiles_n = u32(blocks_of_lines(g));
  p.a_outer = conv.a_outer;
  run<kernel::Regions>(launch, p, dispatch);
}

bool accepts_output(const Product& product, const Strategy& row, const ShaderTarget& target) {
  return accepts(product, row, target) && !is_weight(product.gemm);
}

bool accepts_weight(const Product& product, const Strategy& row, const ShaderTarget& target) {
  return accepts(product, row, target) && is_weight(product.gemm);
}

} // namespace depthwise

// ---- Gradients of weights with few channels, such as those of a picture's first convolution

namespace lines {

constexpr int64_t kInvocations = kernels::conv_lines::kWorkgroup;
constexpr int64_t kMostTaps = 8;   // of a line of the weight, see conv_lines.wgsl
constexpr int64_t kMostLines = 24; // of a workgroup: most_lines there
constexpr int64_t kSegment = 32;   // positions that are staged at a time: segment there

// Invocations of a workgroup with different filters, eight each.
int64_t across(const Gemm& g) { return g.m > 32 ? 8 : 4; }

// Lines of taps that a workgroup computes: about the same number in each.
int64_t lines_of_workgroup(const Gemm& g) {
  const int64_t lines = g.n / taps_of_line(g);
  return ceil_div(lines, ceil_div(lines, kMostLines));
}

bool accepts(const Product& product, const Strategy& row, const ShaderTarget& target) {
  constexpr uint32_t kStorage = 16384;
  const Gemm& g = product.gemm;
  if (!is_convolution(product, row, target) ||
      g.conv->form != kernels::conv_product::Form::weight ||
      info(product.dtype).kind != Kind::kFloat || g.n == 0 || g.k == 0) {
    return false;
  }
  const auto& conv = g.conv->params;
  return taps_of_line(g) <= kMostTaps && conv.stride[2] <= 2 &&
         (conv.dilation[2] == 1 || taps_of_line(g) == 1) &&
         target.max_workgroup_storage >= kStorage &&
         target.max_workgroup_invocations >= kInvocations;
}

// Called for products that the kernel does not take, too.
int cost(const Product& product, const Strategy&, const ShaderTarget& target) {
  constexpr int64_t kMostChannels = 4;
  constexpr int64_t kFewestFilters = 16;
  constexpr int64_t kFewestProducts = int64_t{1} << 24;
  const Gemm& g = product.gemm;
  if (g.conv == nullptr || g.conv->grouped) {
    return kNever;
  }
  const auto& conv = g.conv->params;
  const bool pays = conv.position_row[0] >= kSegment / 2 && g.m >= kFewestFilters &&
                    g.n <= kMostChannels * conv.tap_volume[0] && g.m * g.n * g.k >= kFewestProducts;
  // Where subgroup matrices take the groups of channels (25), they are faster.
  const int own = has_matrices(product, DType::kF16, target) ? 26 : 20;
  return pays ? own : kNever;
}

// Pieces of K are whole lines of positions. All workgroups run at the same time: two of long lines
// of taps fit a processor's registers, three of others. On an H100 half as many again take 1.3
// times as long.
Strategy::Division divide(const Product& product, const Strategy&, const ShaderTarget& target) {
  constexpr int64_t kShortest = 16; // a step of K, for gemm()
  const Gemm& g = product.gemm;
  const int64_t width = g.conv->params.position_row[0];
  return {.tile = {8 * across(g), lines_of_workgroup(g) * taps_of_line(g),
                   ceil_div(kShortest, width) * width},
          .enough_workgroups = processors(target) * (taps_of_line(g) > 5 ? 2 : 3)};
}

// Whether four neighbours in y, along a line or filters, are loaded together.
bool has_groups_of_y(const Product& product, const ShaderTarget& target) {
  const Gemm& g = product.gemm;
  const auto& conv = g.conv->params;
  const bool along_k = product.a_along_k;
  return product.dtype == DType::kF32 && lie_in_bindings(g, target) &&
         (along_k ? g.a.column : g.a.row) == 1 &&
         in_units(4, {g.a.offset, g.a.batch, conv.a_outer, along_k ? g.a.row : g.a.column,
                      along_k ? conv.position_row[0] : g.m});
}

void launch(const ProductDispatch& dispatch, const Strategy&) {
  namespace kernel = kernels::conv_lines;
  constexpr int64_t kTogether = 4; // positions that an invocation takes at a time
  const Gemm& g = dispatch.product.gemm;
  const bool in_fours = has_groups_of_y(dispatch.product, plan_target(*g.a.tensor));
  kernel::Launch launch(g.op);
  bind_operands(launch, dispatch, {}, in_fours ? std::optional(DType::kBits128) : std::nullopt);
  launch.form(static_cast<kernel::Form>(g.conv->form)).strided(g.conv->strided);
  launch.taps_z(u32(taps_of_line(g))).step(g.conv->params.stride[2]);
  launch.across(u32(across(g))).a_along_k(dispatch.product.a_along_k);
  kernel::Params p;
  set_places(p, g.conv->params);
  set_matrices(p, dispatch);
  p.a_outer = g.conv->params.a_outer;
  p.lines = u32(lines_of_workgroup(g));
  p.parts = u32(std::min(kInvocations / across(g) / lines_of_workgroup(g), kSegment / kTogether));
  run<kernel::Regions>(launch, p, dispatch);
}

} // namespace lines

// Costs: 0 for the smallest products, 10 for vectors, then from the fastest tiles to the slowest.
// An invocation of the kernels without tiles adds up 2048 products at most.
constexpr Strategy kStrategies[] = {
    // name, tile {m, n, k}, tiles per workgroup, longest K, accepts, cost, launch, divide
    {"direct", {1, 1, 1}, 64, 2048, is_plain, cost_of_direct, launch_direct},
    {"strips",
     {8, 4, 4},
     kernels::gemm_strips::kWorkgroup,
     0,
     strips::accepts,
     strips::cost,
     strips::launch,
     strips::divide},
    {"thin", {4, 8, 16}, 1, 0, thin::accepts, thin::cost, thin::launch, thin::divide},
    {"vector_32", {32, 1, 16}, 1, 0, is_vector, cost_of_vector, launch_vector},
    {"vector_16", {16, 1, 16}, 1, 0, is_vector, cost_of_vector, launch_vector},
    {"vector_8", {8, 1, 16}, 1, 0, is_vector, cost_of_vector, launch_vector},
    {"vector_4", {4, 1, 16}, 1, 0, is_vector, cost_of_vector, launch_vector},
    {"vector_2", {2, 1, 16}, 1, 0, is_vector, cost_of_vector, launch_vector},
    {"vector_1", {1, 1, 16}, 1, 0, is_vector, cost_of_vector, launch_vector},
    {"matrix_f16",
     {128, 128, 32},
     1,
     0,
     matrix::accepts_f16,
     matrix::cost_f16,
     matrix::launch_f16,
     matrix::divide_f16,
     8},
    {"matrix_bf16",
     {128, 128, 32},
     1,
     0,
     matrix::accepts_bf16,
     matrix::cost_bf16,
     matrix::launch_bf16,
     divide_large,
     8},
    {"matrix_bf16_copies",
     {128, 128, 32},
     1,
     0,
     matrix::accepts_bf16_copies,
     matrix::cost_bf16_copies,
     matrix::launch_bf16_copies,
     divide_large,
     8},
    {"matrix_f16_copies",
     {128, 128, 32},
     1,
     0,
     matrix::accepts_f16_copies,
     matrix::cost_f16_copies,
     matrix::launch_f16_copies,
     divide_large,
     8},
    {"matrix_f32",
     {128, 128, 32},
     1,
     0,
     high::accepts,
     high::cost,
     high::launch,
     matrix::divide_f16},
    {"registers_128",
     {128, 128, 8},
     1,
     0,
     registers::accepts,
     registers::cost,
     registers::launch_large,
     registers::divide,
     4},
    {"registers_64",
     {64, 64, 32},
     1,
     0,
     registers::accepts,
     registers::cost,
     registers::launch_small,
     registers::divide,
     4},
    {"registers_32",
     {32, 32, 64},
     1,
     0,
     registers::accepts,
     registers::cost,
     registers::launch_small,
     registers::divide,
     4},
    {"tiles_64", {64, 64, 16}, 1, 0, fits_plain_tiles, cost_of_tiles, launch_tiles},
    {"tiles_32", {32, 32, 8}, 1, 0, fits_plain_tiles, cost_of_tiles, launch_tiles},
    {"convolution_matrix_f16",
     {128, 128, 32},
     1,
     0,
     is_convolution_matrix_f16,
     cost_of_convolution_matrix_f16,
     launch_convolution_matrix_f16,
     matrix::divide_f16},
    {"convolution_rows_f16",
     {64, 128, 32},
     1,
     0,
     conv_rows::accepts,
     conv_rows::cost,
     conv_rows::launch,
     conv_rows::divide,
     0,
     true},
    {"convolution_registers",
     {128, 128, 8},
     1,
     0,
     is_convolution_registers,
     cost_of_convolution_registers,
     launch_convolution_registers,
     registers::divide},
    {"convolution_winograd",
     {4, 16, 1},
     1,
     0,
     winograd::accepts,
     winograd::cost,
     winograd::launch,
     winograd::divide},
    {"convolution_depthwise",
     {1, 256, 1},
     1,
     0,
     depthwise::accepts_output,
     depthwise::cost,
     depthwise::launch},
    {"convolution_depthwise_weight",
     {1, 8, 256},
     1,
     0,
     depthwise::accepts_weight,
     depthwise::cost,
     depthwise::launch_weight,
     depthwise::divide_weight},
    {"convolution_few", {4, 256, 1}, 1, 0, few::accepts, few::cost, few::launch, few::divide},
    {"convolution_taps", {1, 8, 256}, 1, 0, taps::accepts, taps::cost, taps::launch, taps::divide},
    {"convolution_lines",
     {64, 64, 32},
     1,
     0,
     lines::accepts,
     lines::cost,
     lines::launch,
     lines::divide},
    {"convolution_direct",
     {1, 1, 1},
     64,
     2048,
     is_convolution,
     cost_of_convolution_direct,
     launch_convolution_direct},
    {"convolution_64",
     {64, 64, 16},
     1,
     0,
     fits_convolution_tiles,
     cost_of_tiles,
     launch_convolution_tiles},
    {"convolution_32",
     {32, 32, 8},
     1,
     0,
     fits_convolution_tiles,
     cost_of_tiles,
     launch_convolution_tiles},
};

std::atomic<const Strategy*> forced = nullptr;

} // namespace

bool has_groups(const Gemm& g, const MatrixView& view, int64_t rows, bool along_k, int64_t unit) {
  // The stride of a dimension of one element is never used.
  const auto is_unit = [](int64_t stride, int64_t size) { return stride == 1 || size == 1; };
  const auto fits = [&](int64_t stride, int64_t size) { return size == 1 || stride % unit == 0; };
  const auto ends = [&](int64_t size) { return view.padded || size % unit == 0; };
  return view.offset % unit == 0 && fits(view.batch, g.batch) && fits(view.image, g.blocks) &&
         (along_k ? is_unit(view.column, g.k) && ends(g.k) && fits(view.row, rows)
                  : is_unit(view.row, rows) && ends(rows) && fits(view.column, g.k));
}

bool pays_for_copy(const Gemm& g, int64_t uses) {
  // On an H200 a product of float16 takes 8 times as long with loads one by one, or 25 us more for
  // each 2^30 products.
  constexpr int64_t kFewestUses = 256;
  constexpr int64_t kFewestProducts = int64_t{1} << 30;
  return uses >= kFewestUses && g.batch * g.m * g.n * g.k >= kFewestProducts;
}

bool may_be_padded(const Gemm& g, const MatrixView& view, int64_t rows, bool along_k, int64_t unit,
                   const ShaderTarget& target) {
  const int64_t batches = g.batches_of(view);
  const int64_t inner = along_k ? g.k : rows;
  const int64_t padded = batches * (along_k ? rows : g.k) * ceil_div(inner, unit) * unit;
  const int64_t reach =
      (batches - 1) * view.batch + (rows - 1) * view.row + (g.k - 1) * view.column;
  const auto bytes = static_cast<int64_t>(view.tensor->element_size());
  return g.blocks == 1 && padded <= 2 * (reach + unit) &&
         static_cast<uint64_t>(padded * bytes) <= BindingList::safe_reach(target);
}

Product::Product(const Gemm& gemm)
    : gemm(gemm), dtype(operand_dtype(gemm.op, "a", gemm.a.tensor->scalar_type())),
      sum(sum_dtype(dtype)), a_along_k(gemm.a.column <= gemm.a.row),
      b_along_k(gemm.b.row < gemm.b.column) {
  check_operand_dtype(gemm.op, "b", gemm.b.tensor->scalar_type(), dtype);
  if (gemm.d.tensor != nullptr) {
    check_operand_dtype(gemm.op, "d", gemm.d.tensor->scalar_type(), dtype);
  }
}

std::span<const Strategy> product_strategies() { return kStrategies; }

StrategyChoice find_strategy(const Product& product, const ShaderTarget& target) {
  const Strategy* row = forced.load(std::memory_order_relaxed);
  if (row != nullptr && !product.gemm.is_part) {
    return {row->accepts(product, *row, target) ? row : nullptr, 0};
  }
  const Strategy* wanted = product.gemm.wanted;
  if (wanted != nullptr && wanted->accepts(product, *wanted, target)) {
    return {wanted, -1};
  }
  if (C10_UNLIKELY(tuning::is_enabled())) {
    const Strategy* tuned = tuning::chosen(product);
    if (tuned != nullptr && tuned->accepts(product, *tuned, target)) {
      return {tuned, std::max(tuned->cost(product, *tuned, target), 0)};
    }
  }
  // The costs first, because they take less time. No cost is below 0.
  StrategyChoice best = {nullptr, std::numeric_limits<int>::max()};
  for (const Strategy& row : kStrategies) {
    const int cost = row.cost(product, row, target);
    if (cost < best.cost && row.accepts(product, row, target)) {
      best = {&row, cost};
      if (cost == 0) {
        break;
      }
    }
  }
  return best;
}

void raise_no_strategy(const char* op) {
  const Strategy* row = forced.load(std::memory_order_relaxed);
  TORCH_CHECK_NOT_IMPLEMENTED(row == nullptr, op, "(): the strategy ", row->name,
                              " does not take this product");
  TORCH_CHECK_NOT_IMPLEMENTED(false, op, "(): no kernel takes this product on this adapter");
}

const Strategy& strategy_named(std::string_view name) {
  const auto* row = std::ranges::find(kStrategies, name, &Strategy::name);
  TORCH_CHECK_VALUE(row != std::end(kStrategies), "there is no strategy ", name);
  return *row;
}

void force_strategy(std::string_view name) {
  forced = name.empty() ? nullptr : &strategy_named(name);
}

bool allows_less_precision(const Product& product) {
  return product.gemm.is_matmul && product.dtype == DType::kF32 && high::is_allowed();
}

bool is_strategy_forced() { return forced.load(std::memory_order_relaxed) != nullptr; }

at::Tensor product_ranges(const Product& product) {
  namespace kernel = kernels::gemm_ranges;
  const Gemm& g = product.gemm;
  kernel::Launch launch(g.op);
  const auto params = matrix::blocks_of<kernel::Params>(launch, product);
  const at::Tensor ranges =
      empty_webgpu({int64_t{params.a_blocks} + params.b_blocks}, at::kInt, g.a.tensor->device());
  launch.ranges_range(WrittenBuffer(ranges), 0, ranges.nbytes(), DType::kBits8);
  launch.run(params);
  return ranges;
}

std::pair<at::Tensor, at::Tensor> product_halves(const Product& product, const at::Tensor& ranges) {
  namespace kernel = kernels::gemm_halves;
  const Gemm& g = product.gemm;
  const at::Device device = g.a.tensor->device();
  at::Tensor a = empty_webgpu(matrix::sizes_of_halves(g, g.a, g.m), at::kHalf, device);
  at::Tensor b = empty_webgpu(matrix::sizes_of_halves(g, g.b, g.n), at::kHalf, device);
  kernel::Launch launch(g.op);
  launch.a_out_as(DType::kBits128, a).b_out_as(DType::kBits128, b);
  if (ranges.defined()) {
    launch.ranges_range(buffer_of(ranges), 0, ranges.nbytes(), DType::kBits8);
  }
  auto params = matrix::blocks_of<kernel::Params>(launch, product);
  params.a_groups = u32(a.size(-1) / matrix::kGroup);
  params.b_groups = u32(b.size(-1) / matrix::kGroup);
  launch.run(params);
  return {std::move(a), std::move(b)};
}

void launch_reduce(const Product& product, const at::Tensor& pieces) {
  namespace kernel = kernels::gemm_reduce;
  Gemm g = product.gemm;
  std::optional<Fusion> fusion = g.fusion != nullptr ? std::optional(*g.fusion) : std::nullopt;
  if (g.conv != nullptr && g.conv->form != kernels::conv_product::Form::weight) {
    // In C, a batch is a group, a row a channel, and a column an image and a position. The plain
    // product has the channels of all groups as batches, images as rows, positions as columns.
    TORCH_INTERNAL_ASSERT(g.c.batch == g.m * g.c.row);
    const int64_t positions = g.conv->params.position_volume[0];
    const auto by_channels = [](const MatrixView& view, int64_t image) {
      return MatrixView{view.tensor, view.offset, view.row, image, view.column, view.reach};
    };
    g.c = by_channels(g.c, g.conv->params.c_outer);
    g.d = by_channels(g.d, 0);
    if (fusion) {
      for (MatrixView& operand : fusion->operands) {
        operand = by_channels(operand, operand.image);
      }
      fusion->second = by_channels(fusion->second, fusion->second.image);
      g.fusion = &*fusion;
    }
    g.batch *= g.m;
    g.m = g.n / positions;
    g.n = positions;
  }
  g.conv = nullptr;
  g.blocks = 1;
  // Few elements of many pieces would leave most processors without work.
  constexpr int64_t kFewPieces = 16;
  constexpr int64_t kElements = 64; // for each of `workgroups_to_fill`
  const bool by_lanes =
      pieces.size(0) >= kFewPieces &&
      g.batch * g.m * g.n < kElements * plan_target(*g.a.tensor).workgroups_to_fill;
  const Product plain(g);
  ProductDispatch dispatch{.product = plain, .c = g.c, .splits = pieces.size(0)};
  kernel::Launch launch(g.op);
  bind_c(launch, dispatch);
  launch.a(pieces).by_lanes(by_lanes);
  kernel::Params p;
  set_c(p, dispatch);
  run<kernel::Regions>(launch, p, dispatch);
}

} // namespace torch_webgpu
