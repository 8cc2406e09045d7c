// How attention is computed, as one table. A faster way is a row of it and a kernel file.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "wgsl/dtype.h"
#include "wgsl/target.h"

namespace torch_webgpu {

/// A call of attention as the rows of the table judge it. Sizes in elements.
struct AttentionShape {
  DType dtype; // of queries, keys and values
  int64_t batches = 0, heads = 0, group = 1;
  int64_t queries = 0, keys = 0, dims = 0, value_dims = 0;
  bool groups_of_eight = false; // rows of q, k and v are whole aligned groups of eight elements
  bool vectors = false;         // they are whole aligned groups of 16 bytes
  bool score_gradients = false; // the backward pass also writes the gradients of the scores
  bool causal = false;
  bool biased = false, dropped = false; // there is a mask, or dropout
  bool modified = false;                // a ScoreProgram changes the scores
  bool changed_gradients = false;       // and their gradients
  uint32_t further_buffers = 0;         // that it binds

  int64_t widest() const { return dims > value_dims ? dims : value_dims; }
  /// Multiplications of the forward pass, if every query sees every key.
  int64_t products() const { return batches * heads * queries * keys * (dims + value_dims); }
};

/// How a workgroup of the tiled kernels divides its work: the constants of attention/tile.wgsl.
struct AttentionTile {
  uint32_t lanes, ways, rows_each, columns_each, chunk;
  bool rolled;

  uint32_t rows() const { return lanes * rows_each; }
  uint32_t columns() const { return ways * columns_each; }
  /// Groups of four elements of the columns that are in workgroup memory.
  uint32_t space() const { return columns() * chunk > 128 ? 256 : 128; }
  /// Groups of four elements of a row's result that an invocation keeps.
  uint32_t groups(int64_t dims) const;
  /// Bytes of workgroup memory, with so many planes of weights.
  uint32_t storage(uint32_t planes) const;
};

/// How a workgroup of the kernels in blocks divides its work: the constants of
/// attention/blocks.wgsl.
struct AttentionBlocks {
  uint32_t invocations = 0, lanes = 0, row_blocks = 0, column_blocks = 0;

  uint32_t rows() const { return 4 * invocations / lanes * row_blocks; }
  uint32_t columns() const { return 4 * lanes * column_blocks; }
  /// Invocations that share a block of results of so many dimensions.
  uint32_t ways(int64_t dims) const { return lanes == 16 && dims <= 32 ? 2 : 1; }
  /// Blocks of dimensions of an invocation's results.
  uint32_t dim_blocks(int64_t dims) const { return dims <= 4 * lanes ? 1 : 2; }
  /// Columns, or dimensions, that are in workgroup memory at a time. Small tiles have room for
  /// more.
  uint32_t step(int64_t dims) const {
    return row_blocks * column_blocks * dim_blocks(dims) == 1 ? 32 : 16;
  }
  /// Whether the kernels take results of so many dimensions.
  bool takes(int64_t dims) const;
  /// Bytes of workgroup memory, with so many more for each column.
  uint32_t storage(int64_t dims, uint32_t column_bytes) const;
};

/// How a subgroup of attention_stream.wgsl divides its work.
struct AttentionTeam {
  uint32_t lanes;  // of a subgroup, for certain
  uint32_t width;  // lanes that share the groups of 16 bytes of a row
  uint32_t groups; // of a row in a lane: 1, 2 or 4
};
/// Nothing where the kernel cannot compute the call.
std::optional<AttentionTeam> attention_team(const AttentionShape& shape,
                                            const ShaderTarget& target);

enum class AttentionPass : uint8_t { kForward, kBackward };
/// Which kernel files compute it.
enum class AttentionKernel : uint8_t {
  kStream, // attention_stream.wgsl
  kDecode, // attention_decode.wgsl
  kMatrix, // attention_matrix*.wgsl
  kScaled, // the same for bfloat16 heads that fit in float16, attention_blocks*.wgsl for others
  kBlocks, // attention_blocks*.wgsl
  kTiles,  // attention_forward.wgsl, attention_gradient_*.wgsl
};

struct AttentionStrategy {
  std::string_view name;
  AttentionPass pass;
  AttentionKernel kernel;
  int64_t most_queries = 0; // 0: any number
  int64_t widest;           // head dimension that it takes
  bool few_groups = false;  // for devices that few workgroups keep busy: software
  AttentionTile tile = {};  // of kTiles
  // Of kBlocks and kScaled: the result, or the gradient of the queries.
  AttentionBlocks blocks = {};
  // A call needs at least workgroups_to_fill / fill workgroups to take the row; 0: any number.
  uint32_t fill = 0;
  AttentionBlocks key_blocks = {}; // of these: the gradients of keys and values
  int64_t fewest_products = 0;     // AttentionShape::products() that a call needs
  int64_t narrowest = 0;           // the least head dimension that a call needs
  // Of kMatrix and kScaled, forward: a second dispatch repeats the workgroups whose first walk over
  // the keys failed (attention_matrix.wgsl).
  bool walks_apart = false;
  // Backward: the kernel of the queries stores weights and gradients of scores, from which two
  // products make the gradients of keys and values (stored.wgsl).
  bool stored = false;
};

/// How a row with `stored` stores weights and gradients of scores. Each dispatch has as many heads
/// of queries, and each head takes as many groups of 16 bytes.
struct StoredScores {
  int64_t heads;
  int64_t groups_of_head;
};
/// Nothing where there is too little room, or where a dispatch would have too few workgroups.
std::optional<StoredScores> stored_scores(const AttentionStrategy& row, const AttentionShape& shape,
                                          const ShaderTarget& target);

/// Whether heads do not fit in the narrow form of the kernels on matrices.
inline bool is_wide(const AttentionShape& shape) { return shape.widest() > 64; }

/// Queries of a workgroup of attention_matrix_queries.wgsl.
inline int64_t rows_of_matrices(const AttentionShape& shape) { return is_wide(shape) ? 64 : 128; }

/// Storage buffers that a kernel binds at most.
inline constexpr uint32_t kStorageBuffers = 8;
/// The largest head dimension that the kernels take.
inline constexpr int64_t kWidestHead = 256;

/// Whether products and softmax, one after the other, take less time on such a device, where both
/// ways are allowed.
bool is_composed_faster(const ShaderTarget& target);

/// For tests: the row of a pass that is taken from now on, whatever else fits; "" for none. Raises
/// an error for an unknown name.
void force_attention(std::string_view name);
/// The names of the rows of a pass.
std::vector<std::string_view> attention_names(AttentionPass pass);

/// The first row of the table that the target has the memory for; null if there is none.
const AttentionStrategy* find_attention(const AttentionShape& shape, AttentionPass pass,
                                        const ShaderTarget& target);

} // namespace torch_webgpu
