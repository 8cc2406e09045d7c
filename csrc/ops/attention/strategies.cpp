#include "ops/attention/strategies.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include "kernels/attention_matrix.h"
#include "launch/binding_list.h"
#include "launch/matrix_units.h"
#include "launch/target_scope.h"
#include "runtime/error.h"

namespace torch_webgpu {
namespace {

using Pass = AttentionPass;
using Kernel = AttentionKernel;

// {invocations, lanes, row blocks, column blocks}: 32 rows of 64 columns, 64 of 64 twice, and 64 of
// 128. On an H100 kTall is the fastest one forward for heads of up to 64 dimensions, kBroad
// backward, and kWide in both directions for wider heads. Where two blocks meet one they take five
// times as long, but for kTall forward; so does kWide for heads of up to 64 dimensions.
constexpr AttentionBlocks kFlat = {128, 16, 1, 1};
constexpr AttentionBlocks kBroad = {256, 16, 1, 1};
constexpr AttentionBlocks kTall = {128, 16, 2, 1};
constexpr AttentionBlocks kWide = {128, 16, 2, 2};

// Below so many products, the passes of kScaled over the operands, and its second kernel that may
// find nothing to do, are not worth it. An estimate from what the kernels take in large calls.
constexpr int64_t kFewestScaled = int64_t{1} << 29;
// From so many on, two dispatches take less time than one kernel with all walks. Most workgroups of
// the second one end at once. Measured on an H100, where narrow heads of bfloat16 gain nothing.
constexpr int64_t kFewestApart = int64_t{1} << 35;

// The first row that fits is taken.
constexpr AttentionStrategy kStrategies[] = {
    // Tiles are {lanes, ways, rows each, columns each, chunk, rolled}.
    {.name = "stream",
     .pass = Pass::kForward,
     .kernel = Kernel::kStream,
     .most_queries = 8,
     .widest = 256},
    {.name = "decode",
     .pass = Pass::kForward,
     .kernel = Kernel::kDecode,
     .most_queries = 8,
     .widest = 256},
    {.name = "forward_matrix_large",
     .pass = Pass::kForward,
     .kernel = Kernel::kMatrix,
     .widest = 128,
     .fewest_products = kFewestApart,
     .walks_apart = true},
    {.name = "forward_matrix", .pass = Pass::kForward, .kernel = Kernel::kMatrix, .widest = 128},
    {.name = "forward_matrix_bf16_large",
     .pass = Pass::kForward,
     .kernel = Kernel::kScaled,
     .widest = 128,
     .blocks = kFlat,
     .fewest_products = kFewestApart,
     .narrowest = 65,
     .walks_apart = true},
    {.name = "forward_matrix_bf16",
     .pass = Pass::kForward,
     .kernel = Kernel::kScaled,
     .widest = 128,
     .blocks = kFlat,
     .fewest_products = kFewestScaled},
    {.name = "forward_software",
     .pass = Pass::kForward,
     .kernel = Kernel::kTiles,
     .widest = 128,
     .few_groups = true,
     .tile = {64, 1, 1, 16, 16, true}},
    {.name = "forward_blocks_64",
     .pass = Pass::kForward,
     .kernel = Kernel::kBlocks,
     .widest = 64,
     .blocks = kTall,
     .fill = 8},
    {.name = "forward_blocks_128",
     .pass = Pass::kForward,
     .kernel = Kernel::kBlocks,
     .widest = 128,
     .blocks = kWide,
     .fill = 8},
    {.name = "forward_blocks_32",
     .pass = Pass::kForward,
     .kernel = Kernel::kBlocks,
     .widest = 128,
     .blocks = kFlat},
    {.name = "forward_32",
     .pass = Pass::kForward,
     .kernel = Kernel::kTiles,
     .widest = 256,
     .tile = {32, 4, 1, 8, 4, false}},
    {.name = "backward_matrix_stored",
     .pass = Pass::kBackward,
     .kernel = Kernel::kMatrix,
     .widest = 128,
     .stored = true},
    {.name = "backward_matrix", .pass = Pass::kBackward, .kernel = Kernel::kMatrix, .widest = 128},
    {.name = "backward_matrix_bf16_stored",
     .pass = Pass::kBackward,
     .kernel = Kernel::kScaled,
     .widest = 128,
     .blocks = kFlat,
     .key_blocks = kFlat,
     .fewest_products = kFewestScaled,
     .stored = true},
    {.name = "backward_matrix_bf16",
     .pass = Pass::kBackward,
     .kernel = Kernel::kScaled,
     .widest = 128,
     .blocks = kFlat,
     .key_blocks = kFlat,
     .fewest_products = kFewestScaled},
    {.name = "backward_software",
     .pass = Pass::kBackward,
     .kernel = Kernel::kTiles,
     .widest = 128,
     .few_groups = true,
     .tile = {64, 1, 1, 8, 16, true}},
    {.name = "backward_blocks_64_stored",
     .pass = Pass::kBackward,
     .kernel = Kernel::kBlocks,
     .widest = 64,
     .blocks = kBroad,
     .fill = 8,
     .key_blocks = kBroad,
     .stored = true},
    {.name = "backward_blocks_64",
     .pass = Pass::kBackward,
     .kernel = Kernel::kBlocks,
     .widest = 64,
     .blocks = kBroad,
     .fill = 8,
     .key_blocks = kBroad},
    {.name = "backward_blocks_128_stored",
     .pass = Pass::kBackward,
     .kernel = Kernel::kBlocks,
     .widest = 128,
     .blocks = kWide,
     .fill = 8,
     .key_blocks = kWide,
     .stored = true},
    {.name = "backward_blocks_128",
     .pass = Pass::kBackward,
     .kernel = Kernel::kBlocks,
     .widest = 128,
     .blocks = kWide,
     .fill = 8,
     .key_blocks = kWide},
    {.name = "backward_blocks_32",
     .pass = Pass::kBackward,
     .kernel = Kernel::kBlocks,
     .widest = 128,
     .blocks = kFlat,
     .key_blocks = kFlat},
    {.name = "backward_64",
     .pass = Pass::kBackward,
     .kernel = Kernel::kTiles,
     .widest = 64,
     .tile = {32, 4, 2, 4, 4, false}},
    {.name = "backward_32",
     .pass = Pass::kBackward,
     .kernel = Kernel::kTiles,
     .widest = 256,
     .tile = {32, 4, 1, 4, 4, false}},
};

// Halves in groups of eight, on subgroup matrices.
bool fits_matrices(const AttentionShape& shape, DType dtype, const ShaderTarget& target) {
  constexpr uint32_t kStorage =
      25 * 1024; // of attention_matrix.wgsl, the most of the three kernels
  return !shape.score_gradients && shape.dtype == dtype && shape.groups_of_eight &&
         has_f16_matrices(target) && target.max_workgroup_storage >= kStorage &&
         target.max_workgroup_invocations >= kernels::attention_matrix::kWorkgroup;
}

bool fits_blocks(const AttentionBlocks& blocks, const AttentionShape& shape,
                 const ShaderTarget& target, uint32_t column_bytes) {
  return blocks.takes(shape.widest()) && blocks.invocations <= target.max_workgroup_invocations &&
         blocks.storage(shape.widest(), column_bytes) <= target.max_workgroup_storage;
}

// With scales, which walks failed, or what a ScoreProgram reads, kernels bind more buffers than
// other calls do.
bool has_buffers(const AttentionStrategy& row, const AttentionShape& shape,
                 const ShaderTarget& target) {
  uint32_t buffers = row.pass == Pass::kBackward ? 7 : (shape.dropped ? 7 : 5);
  buffers += shape.biased ? 1 : 0;
  buffers += row.kernel == Kernel::kScaled ? 1 : 0;
  buffers += row.walks_apart || row.stored ? 1 : 0;
  buffers += shape.further_buffers;
  return buffers <= target.max_storage_buffers;
}

std::array<const AttentionStrategy*, 2> forced = {}; // of each pass

// Whether the row is not too large for the call: it has enough work, or enough workgroups of the
// row's size, and its heads fill the row's blocks.
bool fills(const AttentionStrategy& row, const AttentionShape& shape, const ShaderTarget& target) {
  if (shape.products() < row.fewest_products || shape.widest() < row.narrowest) {
    return false;
  }
  // Two blocks of columns want two of dimensions, of every result.
  if (row.blocks.column_blocks > 1 &&
      row.blocks.dim_blocks(std::min(shape.dims, shape.value_dims)) == 1) {
    return false;
  }
  if (row.fill == 0) {
    return true;
  }
  return shape.batches * shape.heads * shape.queries >=
         int64_t{target.workgroups_to_fill / row.fill} * row.blocks.rows();
}

} // namespace

std::optional<AttentionTeam> attention_team(const AttentionShape& shape,
                                            const ShaderTarget& target) {
  constexpr uint32_t kLeast = 4; // a step's keys, which the lanes of a team have the scores of
  if (!target.subgroups || target.subgroup_min_size < kLeast || !shape.vectors ||
      target.max_workgroup_invocations < 256) {
    return std::nullopt;
  }
  const uint32_t lanes = std::bit_floor(std::min(target.subgroup_min_size, 32U));
  const auto groups = static_cast<uint32_t>(shape.widest() * info(shape.dtype).bytes / 16);
  const uint32_t width = std::clamp(std::bit_ceil(groups), kLeast, lanes);
  const uint32_t each = std::bit_ceil((groups + width - 1) / width);
  if (each > 4) {
    return std::nullopt;
  }
  return AttentionTeam{.lanes = lanes, .width = width, .groups = each};
}

std::optional<StoredScores> stored_scores(const AttentionStrategy& row, const AttentionShape& shape,
                                          const ShaderTarget& target) {
  constexpr int64_t kMost = int64_t{512} << 20; // bytes
  constexpr int64_t kStep = 16;                 // keys of attention_matrix_queries.wgsl
  const bool in_blocks = row.kernel == Kernel::kBlocks;
  const int64_t rows = in_blocks ? row.blocks.rows() : rows_of_matrices(shape);
  const int64_t columns = in_blocks ? row.blocks.columns() : kStep;
  const int64_t bytes_of_pair = in_blocks ? 8 : 4; // float32 or float16, twice
  // As stored.wgsl counts them.
  const int64_t tiles = (shape.queries + rows - 1) / rows;
  const int64_t all = (shape.keys + columns - 1) / columns * columns;
  const int64_t unit = std::max(rows, columns);
  int64_t keys = tiles * all;
  if (shape.causal) {
    keys = 0;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      keys += std::min(all, (tile * rows / unit + 1) * unit);
    }
  }
  const int64_t bytes = std::max<int64_t>(keys * rows * bytes_of_pair, 1);
  const auto bound = static_cast<int64_t>(BindingList::safe_reach(target));
  const int64_t units = shape.batches * shape.heads / shape.group; // heads of keys
  const int64_t room = std::min(kMost, bound) / (bytes * shape.group);
  if (room == 0) {
    return std::nullopt;
  }
  const int64_t dispatches = (units + room - 1) / room;
  const int64_t heads = (units + dispatches - 1) / dispatches * shape.group;
  if (dispatches > 1 && heads * tiles < target.workgroups_to_fill / 8) {
    return std::nullopt;
  }
  return StoredScores{.heads = heads, .groups_of_head = bytes / 16};
}

bool AttentionBlocks::takes(int64_t dims) const {
  return dims <= 8 * lanes && step(dims) * lanes * dim_blocks(dims) <= 4 * invocations * ways(dims);
}

uint32_t AttentionBlocks::storage(int64_t dims, uint32_t column_bytes) const {
  const uint32_t most = (column_blocks + dim_blocks(dims) + 1) / 2;
  return 16 * step(dims) * (rows() / 4 + 1 + lanes * most + 1) +
         4 * lanes * column_blocks * column_bytes;
}

uint32_t AttentionTile::groups(int64_t dims) const {
  const auto needed = static_cast<uint32_t>((dims + 4 * ways - 1) / (4 * ways));
  return std::clamp(std::bit_ceil(needed), 4u, 32u);
}

uint32_t AttentionTile::storage(uint32_t planes) const {
  const uint32_t rest = std::max(4 * ways * rows(), 16 * columns()); // parts, column_triples
  return 16 * (chunk * (rows() + 2) + space()) + 4 * planes * columns() * rows() + rest;
}

// Measured on llvmpipe: the tiles take 1 to 2 times as long forward and 2.3 to 3.7 times as long
// with the gradients, because each read of workgroup memory costs more there than the products
// save.
bool is_composed_faster(const ShaderTarget& target) { return is_software(target); }

void force_attention(std::string_view name) {
  if (name.empty()) {
    forced = {};
    return;
  }
  const auto* row = std::ranges::find(kStrategies, name, &AttentionStrategy::name);
  if (row == std::end(kStrategies)) {
    raise(ErrorKind::kRuntime,
          "there is no way to compute attention named '" + std::string(name) + "'");
  }
  forced[static_cast<size_t>(row->pass)] = row;
}

std::vector<std::string_view> attention_names(AttentionPass pass) {
  std::vector<std::string_view> names;
  for (const AttentionStrategy& row : kStrategies) {
    if (row.pass == pass) {
      names.push_back(row.name);
    }
  }
  return names;
}

const AttentionStrategy* find_attention(const AttentionShape& shape, AttentionPass pass,
                                        const ShaderTarget& target) {
  constexpr uint32_t kColumnBytes = 12; // of attention_blocks_keys.wgsl
  const uint32_t planes = pass == AttentionPass::kBackward ? 2 : 1;
  const auto fits = [&](const AttentionStrategy& row) {
    if (row.pass != pass || shape.widest() > row.widest ||
        (row.most_queries != 0 && shape.queries > row.most_queries)) {
      return false;
    }
    const AttentionStrategy* wanted = forced[static_cast<size_t>(pass)];
    if (wanted != nullptr
            ? &row != wanted
            : (row.few_groups && !is_software(target)) || !fills(row, shape, target)) {
      return false;
    }
    if (shape.modified && !has_buffers(row, shape, target)) {
      return false;
    }
    if (row.stored && (shape.modified || shape.score_gradients ||
                       !has_buffers(row, shape, target) || !stored_scores(row, shape, target))) {
      return false;
    }
    const bool has_blocks =
        !shape.score_gradients && fits_blocks(row.blocks, shape, target, 0) &&
        (pass == Pass::kForward || fits_blocks(row.key_blocks, shape, target, kColumnBytes));
    switch (row.kernel) {
    case Kernel::kStream:
      // A software adapter takes seconds to compile the unrolled steps.
      return !shape.modified && (wanted != nullptr || !is_software(target)) &&
             attention_team(shape, target).has_value();
    case Kernel::kDecode:
      return !shape.modified; // keeps to what every device has
    case Kernel::kMatrix:
      return fits_matrices(shape, DType::kF16, target) &&
             (!row.walks_apart || has_buffers(row, shape, target));
    case Kernel::kScaled: // its blocks take less memory than its matrices
      // The powers of two leave room for gradients of scores, but not for a large derivative.
      return !shape.changed_gradients && fits_matrices(shape, DType::kBF16, target) && has_blocks &&
             has_buffers(row, shape, target);
    case Kernel::kBlocks:
      return has_blocks;
    case Kernel::kTiles:
      break;
    }
    return row.tile.storage(planes) <= target.max_workgroup_storage &&
           row.tile.lanes * row.tile.ways <= target.max_workgroup_invocations;
  };
  const auto* row = std::ranges::find_if(kStrategies, fits);
  return row == std::end(kStrategies) ? nullptr : row;
}

} // namespace torch_webgpu
