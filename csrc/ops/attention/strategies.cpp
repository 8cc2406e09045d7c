#include "ops/attention/strategies.h"

#include <algorithm>
#include <bit>

#include "kernels/attention_matrix.h"
#include "launch/matrix_units.h"

namespace torch_webgpu {
namespace {

using Pass = AttentionPass;
using Kernel = AttentionKernel;

// The first row that fits is taken. Wide heads take more registers for each row, so an invocation
// has fewer rows of them.
constexpr AttentionStrategy kStrategies[] = {
    // name, pass, kernel, most queries, widest head, few groups,
    // {lanes, ways, rows each, columns each, chunk, rolled}
    {"decode", Pass::kForward, Kernel::kDecode, 8, 256, false, {}},
    {"forward_matrix", Pass::kForward, Kernel::kMatrix, 0, 128, false, {}},
    {"forward_software", Pass::kForward, Kernel::kTiles, 0, 128, true, {64, 1, 1, 16, 16, true}},
    {"forward_64", Pass::kForward, Kernel::kTiles, 0, 128, false, {32, 4, 2, 8, 4, false}},
    {"forward_32", Pass::kForward, Kernel::kTiles, 0, 256, false, {32, 4, 1, 8, 4, false}},
    {"backward_matrix", Pass::kBackward, Kernel::kMatrix, 0, 128, false, {}},
    {"backward_software", Pass::kBackward, Kernel::kTiles, 0, 128, true, {64, 1, 1, 8, 16, true}},
    {"backward_64", Pass::kBackward, Kernel::kTiles, 0, 64, false, {32, 4, 2, 4, 4, false}},
    {"backward_32", Pass::kBackward, Kernel::kTiles, 0, 256, false, {32, 4, 1, 4, 4, false}},
};

// A device that so many workgroups keep busy computes on cores of a CPU.
constexpr uint32_t kFewGroups = 16;

// Float16 in groups of eight, on subgroup matrices.
bool fits_matrices(const AttentionShape& shape, const ShaderTarget& target) {
  constexpr uint32_t kStorage =
      25 * 1024; // of attention_matrix.wgsl, the most of the three kernels
  return !shape.score_gradients && shape.dtype == DType::kF16 && shape.groups_of_eight &&
         has_f16_matrices(target) && target.max_workgroup_storage >= kStorage &&
         target.max_workgroup_invocations >= kernels::attention_matrix::kWorkgroup;
}

} // namespace

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
bool is_composed_faster(const ShaderTarget& target) {
  return target.workgroups_to_fill <= kFewGroups;
}

const AttentionStrategy* find_attention(const AttentionShape& shape, AttentionPass pass,
                                        const ShaderTarget& target) {
  const uint32_t planes = pass == AttentionPass::kBackward ? 2 : 1;
  const auto fits = [&](const AttentionStrategy& row) {
    if (row.pass != pass || shape.widest() > row.widest ||
        (row.most_queries != 0 && shape.queries > row.most_queries) ||
        (row.few_groups && target.workgroups_to_fill > kFewGroups)) {
      return false;
    }
    switch (row.kernel) {
    case Kernel::kDecode:
      return true; // keeps to what every device has
    case Kernel::kMatrix:
      return fits_matrices(shape, target);
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
