// scaled_dot_product_attention in one operator: what PyTorch calls the overrideable backend, its
// gradient, and the choice between it and the composition of products and softmax.
#include <ATen/Context.h>
#include <ATen/FuncTorchTLS.h>
#include <ATen/SDPBackend.h>
#include <ATen/TensorOperators.h>
#include <ATen/TensorUtils.h>
#include <ATen/ceil_div.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_backward_native.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_native.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "backend/empty.h"
#include "backend/generator.h"
#include "backend/registration.h"
#include "backend/tensor.h"
#include "kernels/attention_blocks.h"
#include "kernels/attention_blocks_keys.h"
#include "kernels/attention_blocks_queries.h"
#include "kernels/attention_blocks_stored.h"
#include "kernels/attention_combine.h"
#include "kernels/attention_decode.h"
#include "kernels/attention_delta.h"
#include "kernels/attention_forward.h"
#include "kernels/attention_gradient_keys.h"
#include "kernels/attention_gradient_queries.h"
#include "kernels/attention_halves.h"
#include "kernels/attention_matrix.h"
#include "kernels/attention_matrix_keys.h"
#include "kernels/attention_matrix_queries.h"
#include "kernels/attention_matrix_stored.h"
#include "kernels/attention_ranges.h"
#include "kernels/attention_scales.h"
#include "kernels/attention_seed.h"
#include "kernels/attention_stream.h"
#include "launch/binding_list.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "launch/halves.h"
#include "launch/target_scope.h"
#include "ops/attention/attention.h"
#include "ops/attention/score_program.h"
#include "ops/attention/strategies.h"
#include "ops/random/philox.h"
#include "runtime/context.h"

namespace torch_webgpu {
namespace {

using at::ceil_div;
using at::SDPBackend;
using at::Tensor;

constexpr const char* kForwardOp = "_scaled_dot_product_fused_attention_overrideable";
constexpr const char* kBackwardOp = "_scaled_dot_product_fused_attention_overrideable_backward";

// ---- The choice. It is also asked about tensors without memory, and of symbolic sizes.

bool same_size(const Tensor& a, const Tensor& b, int64_t dim) {
  return TORCH_GUARD_OR_FALSE(a.sym_size(dim).sym_eq(b.sym_size(dim)));
}

bool at_most(const Tensor& tensor, int64_t dim, int64_t limit) {
  return TORCH_GUARD_OR_FALSE(tensor.sym_size(dim).sym_le(limit)) &&
         TORCH_GUARD_OR_FALSE(tensor.sym_size(dim).sym_ge(1));
}

bool has_head_groups(const Tensor& query, const Tensor& key) {
  return TORCH_GUARD_OR_FALSE(key.sym_size(1).sym_ge(1)) &&
         TORCH_GUARD_OR_FALSE((query.sym_size(1) % key.sym_size(1)).sym_eq(0));
}

bool broadcasts(const Tensor& mask, const Tensor& query, const Tensor& key) {
  const std::array<c10::SymInt, 4> sizes = {query.sym_size(0), query.sym_size(1), query.sym_size(2),
                                            key.sym_size(2)};
  for (int64_t back = 1; back <= mask.dim(); ++back) {
    const c10::SymInt size = mask.sym_size(mask.dim() - back);
    if (!TORCH_GUARD_OR_FALSE(size.sym_eq(sizes[4 - back])) &&
        !TORCH_GUARD_OR_FALSE(size.sym_eq(1))) {
      return false;
    }
  }
  return true;
}

// Whether a transform of torch.func is active. The header that has their stack includes a library
// that PyTorch does not ship; this check of PyTorch's own raises under any of them.
bool is_in_transform() {
  const auto& functorch = at::functorch::functorchTLSAccessor();
  if (functorch == nullptr) {
    return false;
  }
  try {
    functorch->checkSupportsRetainGrad();
    return false;
  } catch (const c10::Error&) {
    return true;
  }
}

// Whether a call may be under vmap or differentiated forward, for which the operator has no rules.
bool is_transformed(std::initializer_list<Tensor> tensors) {
  return is_in_transform() || std::ranges::any_of(tensors, [](const Tensor& tensor) {
           return tensor.defined() && tensor._fw_grad(/*level=*/0).defined();
         });
}

// Why the kernels cannot compute a call; null if they can.
const char* reason_against(const Tensor& query, const Tensor& key, const Tensor& value,
                           const std::optional<Tensor>& mask, double dropout, bool causal,
                           bool grouped_queries) {
  const auto dtype = query.scalar_type();
  if (query.is_nested() || key.is_nested() || value.is_nested()) {
    return "a tensor is nested";
  }
  if (query.dim() != 4 || key.dim() != 4 || value.dim() != 4) {
    return "query, key and value do not have four dimensions each";
  }
  if (!is_native_float(dtype) || key.scalar_type() != dtype || value.scalar_type() != dtype) {
    return "query, key and value are not all float32, all float16 or all bfloat16";
  }
  if (query.device() != key.device() || query.device() != value.device() ||
      (mask && mask->device() != query.device())) {
    return "the tensors are on different devices";
  }
  if (!same_size(query, key, 0) || !same_size(query, value, 0) || !same_size(key, value, 1) ||
      !same_size(key, value, 2) || !same_size(query, key, 3)) {
    return "batch, heads, length or head dimension differ";
  }
  if (grouped_queries ? !has_head_groups(query, key) : !same_size(query, key, 1)) {
    return "the heads of query and key do not match";
  }
  if (!at_most(query, 3, kWidestHead) || !at_most(value, 3, kWidestHead)) {
    return "a head dimension is 0 or larger than 256";
  }
  if (mask && (mask->dim() > 4 || !broadcasts(*mask, query, key) ||
               !(mask->scalar_type() == at::kBool || is_native_float(*mask)))) {
    return "the mask has another shape or dtype than the scores";
  }
  if (mask && causal) {
    return "there is a mask, and is_causal is set";
  }
  if (!(dropout >= 0.0 && dropout <= 1.0)) {
    return "the probability of dropout is not between 0 and 1";
  }
  return nullptr;
}

} // namespace

int64_t fused_sdp_choice(const Tensor& query, const Tensor& key, const Tensor& value,
                         const std::optional<Tensor>& mask, double dropout, bool causal,
                         std::optional<double> /*scale*/, bool grouped_queries) {
  const at::Context& settings = at::globalContext();
  const auto device = static_cast<uint32_t>(resolve_ordinal(query.device().index()));
  const ShaderTarget& target = plan_target(context(device));
  const char* against = reason_against(query, key, value, mask, dropout, causal, grouped_queries);
  if (against == nullptr && is_transformed({query, key, value, mask.value_or(Tensor())})) {
    against = "torch.func's transforms and forward-mode differentiation need the composition";
  }
  if (against == nullptr && target.max_storage_buffers < kStorageBuffers) {
    against = "a shader of this device has fewer than 8 storage buffers";
  }
  const bool math = settings.userEnabledMathSDP();
  if (against == nullptr && settings.userEnabledOverrideableSDP() &&
      !(math && is_composed_faster(target))) {
    return static_cast<int64_t>(SDPBackend::overrideable);
  }
  if (math) {
    return static_cast<int64_t>(SDPBackend::math);
  }
  // As CUDA does: a warning for each backend that was allowed, then the error.
  if (settings.userEnabledOverrideableSDP()) {
    TORCH_WARN("Overrideable attention was not used because ", against, ".");
  }
  if (settings.userEnabledFlashSDP() || settings.userEnabledMemEfficientSDP() ||
      settings.userEnabledCuDNNSDP()) {
    TORCH_WARN("Flash, memory efficient and cuDNN attention are kernels for CUDA. On webgpu, "
               "SDPBackend.OVERRIDEABLE is the fused kernel.");
  }
  TORCH_CHECK(false, "No available kernel. Aborting execution.");
}

namespace {

// ---- The kernels

// Dropout of the weights. Its random numbers follow from the two tensors and from a weight's place
// in the whole call, of which an Attention may be a part.
struct Dropout {
  double p = 0;
  Tensor seed = {}, offset = {}; // int64; undefined if p is 0
  int64_t first_batch = 0, first_head = 0, heads = 0;
};

// A call: tensors of four dimensions.
struct Attention {
  Tensor q, k, v;
  Tensor bias = {}; // of the scores' shape, may repeat; undefined: none
  bool causal = false;
  float scale = 1;
  Dropout dropout = {};
  const ScoreProgram* program = nullptr; // null: none

  AttentionShape shape() const {
    return {.dtype = *native_dtype(q.scalar_type()),
            .batches = q.size(0),
            .heads = q.size(1),
            .group = q.size(1) / std::max<int64_t>(k.size(1), 1),
            .queries = q.size(2),
            .keys = k.size(2),
            .dims = q.size(3),
            .value_dims = v.size(3),
            .causal = causal};
  }
};

struct Outputs {
  Tensor out, lse;
};

struct Gradients {
  Tensor g, out, lse; // given
  Tensor g_lse = {};  // of the logarithms, given; undefined: zero
  Tensor dq = {}, dk = {}, dv = {};
  Tensor ds = {}; // of the scores, float32 and contiguous; undefined: not wanted
};

uint32_t u32(int64_t value) { return static_cast<uint32_t>(value); }

std::array<uint32_t, 4> strides_of(const Tensor& tensor) {
  return {u32(tensor.stride(0)), u32(tensor.stride(1)), u32(tensor.stride(2)),
          u32(tensor.stride(3))};
}

// Elements from the first to the last.
int64_t extent(const Tensor& tensor) {
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    last += (tensor.size(d) - 1) * tensor.stride(d);
  }
  return last + 1;
}

// Whether each row's elements lie in aligned groups of so many.
bool has_groups(const Tensor& tensor, int64_t elements = 4) {
  const auto fits = [&](int64_t d) {
    return tensor.size(d) == 1 || tensor.stride(d) % elements == 0;
  };
  return tensor.size(3) % elements == 0 && tensor.stride(3) == 1 && fits(0) && fits(1) && fits(2) &&
         byte_offset(tensor) % (elements * tensor.itemsize()) == 0;
}

// Whether a kernel may store two neighbours of an output, which is new, in one word.
bool owns_words(const Tensor& tensor) { return tensor.itemsize() == 2 && has_groups(tensor); }

// The kernel's operands q, k, v and g are read in groups, or all by elements.
struct Grouping {
  std::optional<DType> groups;

  explicit Grouping(std::initializer_list<const Tensor*> tensors) {
    if (std::ranges::all_of(tensors, [](const Tensor* t) { return has_groups(*t); })) {
      groups = (*tensors.begin())->itemsize() == 2 ? DType::kBits64 : DType::kBits128;
    }
  }
  explicit Grouping(DType dtype) : groups(dtype) {}

  template <class Bind>
  void bind(const Tensor& tensor, Bind&& range) const {
    const uint64_t begin = byte_offset(tensor);
    TORCH_INTERNAL_ASSERT(!groups || begin % info(*groups).bytes == 0);
    range(buffer_of(tensor), begin,
          begin + static_cast<uint64_t>(extent(tensor)) * tensor.itemsize(),
          groups.value_or(*native_dtype(tensor.scalar_type())));
  }
};

// What the kernels that import attention/operands.wgsl take.
template <class Launch, class Params>
void bind_operands(Launch& launch, Params& p, const Attention& a, const Grouping& grouping) {
  const AttentionShape shape = a.shape();
  grouping.bind(a.q, [&](auto&&... range) { launch.q_range(range...); });
  grouping.bind(a.k, [&](auto&&... range) { launch.k_range(range...); });
  grouping.bind(a.v, [&](auto&&... range) { launch.v_range(range...); });
  if (a.bias.defined()) {
    launch.bias(a.bias);
    p.bias_strides = strides_of(a.bias);
  }
  launch.bfloat(a.q.scalar_type() == at::kBFloat16).causal(a.causal);
  launch.dropped(a.dropout.p > 0);
  p.keep = static_cast<float>(1.0 - a.dropout.p);
  p.kept = static_cast<float>(a.dropout.p < 1.0 ? 1.0 / (1.0 - a.dropout.p) : 0.0);
  p.first_batch = u32(a.dropout.first_batch);
  p.first_head = u32(a.dropout.first_head);
  p.all_heads = u32(a.dropout.heads);
  p.q_strides = strides_of(a.q);
  p.k_strides = strides_of(a.k);
  p.v_strides = strides_of(a.v);
  p.heads = u32(shape.heads);
  p.group = u32(shape.group);
  p.queries = u32(shape.queries);
  p.keys = u32(shape.keys);
  p.dims = u32(shape.dims);
  p.value_dims = u32(shape.value_dims);
  p.scale = a.scale;
}

// Queries and keys of the tiles that a workgroup computes scores of.
struct ScoreTile {
  int64_t queries, keys;
};

// What the kernels that import attention/score.wgsl take, and the dispatch of so many workgroups.
template <class Regions, class Launch, class Params>
void run_scores(Launch& launch, Params& p, const Attention& a, const ScoreTile& tile) {
  const ScoreProgram* program = a.program;
  const Grid grid = launch.grid_of_groups(p.workgroups);
  launch.modified(program != nullptr);
  launch.tiled(program != nullptr && program->holds_tiles(tile.queries, tile.keys));
  const uint32_t text = program != nullptr ? program->text : 0;
  launch.score_text(text % ScoreProgram::kPage).score_page(text / ScoreProgram::kPage);
  if (program == nullptr) {
    launch.run(p, grid);
    return;
  }
  if (const Tensor& blocks = program->blocks; blocks.defined()) {
    launch.blocks_range(buffer_of(blocks), 0, blocks.nbytes(), DType::kBits8);
    p.block_batch = blocks.size(0) == 1 ? 0 : u32(blocks.stride(0));
    p.block_head = blocks.size(1) == 1 ? 0 : u32(blocks.stride(1));
    p.block_row = u32(blocks.size(3));
    p.block_queries = u32(program->block_queries);
    p.block_keys = u32(program->block_keys);
  }
  for (size_t i = 0; i < ScoreProgram::kCaptured; ++i) {
    const Tensor& tensor = program->captured[i];
    if (!tensor.defined()) {
      break;
    }
    constexpr uint64_t kWord = 4;
    const uint64_t bytes = tensor.itemsize();
    const uint64_t begin = byte_offset(tensor);
    const uint64_t first = begin / kWord * kWord;
    const uint64_t end = ceil_div(begin + extent(tensor) * bytes, kWord) * kWord;
    const Buffer& buffer = buffer_of(tensor);
    if (i == 0) {
      launch.captured_a_range(buffer, first, end, DType::kBits32);
    } else if (i == 1) {
      launch.captured_b_range(buffer, first, end, DType::kBits32);
    } else {
      launch.captured_c_range(buffer, first, end, DType::kBits32);
    }
    p.captured_counts[i] = u32(extent(tensor));
    p.captured_offsets[i] = u32((begin - first) / bytes);
    for (int64_t d = 0; d < tensor.dim(); ++d) {
      p.captured_strides[i][d] = u32(tensor.stride(d));
    }
  }
  for (size_t i = 0; i < ScoreProgram::kNumbers; ++i) {
    p.numbers[i / 4][i % 4] = static_cast<uint32_t>(program->numbers[i]);
  }
  launch.run(p, grid, [&] {
    ScoreTexts texts = ScoreProgram::texts_of(text);
    Regions regions;
    regions.score = std::move(texts.score);
    regions.mask = std::move(texts.mask);
    if constexpr (requires { regions.gradient; }) {
      regions.gradient = std::move(texts.gradient);
    }
    return regions;
  });
}

// Constants and grid of the tiled kernels, and the dispatch. `length` rows, of `heads` heads in all
// batches, have results of `dims` elements. `of_keys`: rows are keys, not queries.
template <class Regions, class Launch, class Params>
void run_tiles(Launch& launch, Params& p, const Attention& a, const AttentionTile& tile,
               int64_t length, int64_t heads, int64_t dims, bool of_keys = false) {
  launch.lanes(tile.lanes).ways(tile.ways).rows_each(tile.rows_each);
  launch.columns_each(tile.columns_each).groups(tile.groups(dims));
  launch.chunk(tile.chunk).space(tile.space()).rolled(tile.rolled);
  p.one = 1;
  p.tiles = u32(ceil_div(length, int64_t{tile.rows()}));
  p.workgroups = p.tiles * u32(heads);
  run_scores<Regions>(launch, p, a,
                      of_keys ? ScoreTile{tile.columns(), tile.rows()}
                              : ScoreTile{tile.rows(), tile.columns()});
}

template <class Launch>
void bind_draws(Launch& launch, const Dropout& dropout) {
  if (dropout.p > 0) {
    launch.seed(dropout.seed).offset(dropout.offset);
  }
}

template <class Params>
void set_outputs(Params& p, const Outputs& to) {
  p.out_strides = strides_of(to.out);
  p.lse_batch = u32(to.lse.stride(0));
  p.lse_head = u32(to.lse.stride(1));
}

// The result, whose words a kernel owns where it may, and the logarithms.
template <class Launch, class Params>
void bind_outputs(Launch& launch, Params& p, const Outputs& to) {
  launch.out(to.out).lse(to.lse);
  if (owns_words(to.out)) {
    launch.own_words_of_out();
  }
  set_outputs(p, to);
}

const AttentionStrategy& strategy_for(const char* op, const Attention& a, AttentionPass pass,
                                      bool score_gradients = false) {
  AttentionShape shape = a.shape();
  shape.groups_of_eight = has_groups(a.q, 8) && has_groups(a.k, 8) && has_groups(a.v, 8);
  const int64_t elements = 16 / a.q.itemsize();
  shape.vectors =
      has_groups(a.q, elements) && has_groups(a.k, elements) && has_groups(a.v, elements);
  shape.score_gradients = score_gradients;
  shape.biased = a.bias.defined();
  shape.dropped = a.dropout.p > 0;
  shape.modified = a.program != nullptr;
  shape.changed_gradients = shape.modified && a.program->changes_gradients;
  shape.further_buffers = shape.modified ? a.program->buffers() : 0;
  const AttentionStrategy* row = find_attention(shape, pass, plan_target(a.q));
  TORCH_CHECK_NOT_IMPLEMENTED(row != nullptr, op, "(): no kernel takes heads of ", shape.widest(),
                              " dimensions with the workgroup memory of this adapter");
  return *row;
}

void run_forward_tiles(const Attention& a, const Outputs& to, const AttentionTile& tile) {
  namespace kernel = kernels::attention_forward;
  const AttentionShape shape = a.shape();
  kernel::Launch launch(kForwardOp);
  kernel::Params p;
  bind_outputs(launch, p, to);
  bind_operands(launch, p, a, Grouping({&a.q, &a.k, &a.v}));
  bind_draws(launch, a.dropout);
  run_tiles<kernel::Regions>(launch, p, a, tile, shape.queries, shape.heads * shape.batches,
                             shape.value_dims);
}

// The same of the kernels in blocks. A software adapter takes long over unrolled loops.
template <class Regions, class Launch, class Params>
void run_blocks(Launch& launch, Params& p, const Attention& a, const AttentionBlocks& blocks,
                int64_t length, int64_t heads, int64_t dims, bool of_keys = false) {
  launch.invocations(blocks.invocations).lanes(blocks.lanes).row_blocks(blocks.row_blocks);
  launch.column_blocks(blocks.column_blocks).dim_blocks(blocks.dim_blocks(dims));
  launch.ways(blocks.ways(dims))
      .step(blocks.step(dims))
      .rolled(context_of(a.q).device.info().software);
  p.one = 1;
  p.tiles = u32(ceil_div(length, int64_t{blocks.rows()}));
  p.workgroups = p.tiles * u32(heads);
  run_scores<Regions>(launch, p, a,
                      of_keys ? ScoreTile{blocks.columns(), blocks.rows()}
                              : ScoreTile{blocks.rows(), blocks.columns()});
}

// The scales of bfloat16 heads. In the backward pass there are also the gradients of results, and
// the pairs, which get a word for each row.
Tensor scales_of(const char* op, const Attention& a, const Tensor& g = {},
                 const Tensor& pairs = {}) {
  constexpr int64_t kRows = 128; // of attention_ranges.wgsl
  const AttentionShape shape = a.shape();
  const Grouping grouping(DType::kBits128);
  const int64_t key_heads = a.k.size(1);
  const int64_t query_tiles = ceil_div(shape.queries, kRows);
  const int64_t key_tiles = ceil_div(shape.keys, kRows);
  const int64_t tiles = shape.batches * (shape.heads * query_tiles + key_heads * key_tiles);
  const Tensor ranges = empty_webgpu({tiles}, at::kLong, a.q.device());
  kernels::attention_ranges::Launch find(op);
  find.ranges_as(DType::kBits64, ranges);
  grouping.bind(a.q, [&](auto&&... range) { find.q_range(range...); });
  grouping.bind(a.k, [&](auto&&... range) { find.k_range(range...); });
  grouping.bind(a.v, [&](auto&&... range) { find.v_range(range...); });
  if (g.defined()) {
    grouping.bind(g, [&](auto&&... range) { find.g_range(range...); });
    find.pairs_as(DType::kBits64, pairs);
  }
  find.run({.q_strides = strides_of(a.q),
            .k_strides = strides_of(a.k),
            .v_strides = strides_of(a.v),
            .g_strides = g.defined() ? strides_of(g) : std::array<uint32_t, 4>{},
            .batches = u32(shape.batches),
            .heads = u32(shape.heads),
            .key_heads = u32(key_heads),
            .queries = u32(shape.queries),
            .keys = u32(shape.keys),
            .dims = u32(shape.dims),
            .value_dims = u32(shape.value_dims),
            .query_tiles = u32(query_tiles),
            .key_tiles = u32(key_tiles)});
  const Tensor scales = empty_webgpu({shape.batches * shape.heads}, at::kLong, a.q.device());
  kernels::attention_scales::Launch launch(op);
  launch.scales_as(DType::kBits64, scales).ranges_as(DType::kBits64, ranges);
  launch.backward(g.defined());
  launch.run({.batches = u32(shape.batches),
              .heads = u32(shape.heads),
              .group = u32(shape.group),
              .query_tiles = u32(query_tiles),
              .key_tiles = u32(key_tiles),
              .dims = u32(shape.dims),
              .scale = a.scale});
  return scales;
}

// Whether bfloat16 operands are converted once, and not by each workgroup that stages them. Copies
// of what repeats, such as an expanded head of keys, would be larger than what is given.
bool converts_once(const Attention& a, const Tensor& scales, const Tensor& g = {}) {
  constexpr int64_t kMostStaged = 256; // queries: of two workgroups forward
  const auto repeats = [](const Tensor& tensor) { return tensor.numel() > extent(tensor); };
  return scales.defined() && a.q.size(2) > kMostStaged && !repeats(a.q) && !repeats(a.k) &&
         !repeats(a.v) && !(g.defined() && repeats(g));
}

// An operand as attention_halves.wgsl describes it, with a dtype of its size. `operand`: its byte
// in the scales. With `pairs`, queries get powers of two of their own.
Tensor converted(const char* op, const Tensor& given, uint32_t operand, const Tensor& scales,
                 int64_t heads, const Tensor& pairs = {}) {
  const Tensor copy = empty_webgpu(given.sizes(), given.scalar_type(), given.device());
  kernels::attention_halves::Launch launch(op);
  launch.out_as(DType::kBits128, copy).scales_as(DType::kBits64, scales);
  Grouping(DType::kBits128).bind(given, [&](auto&&... range) { launch.a_range(range...); });
  if (pairs.defined()) {
    launch.pairs_as(DType::kBits64, pairs);
  }
  launch.run({.a_strides = strides_of(given),
              .batches = u32(given.size(0)),
              .heads = u32(given.size(1)),
              .rows = u32(given.size(2)),
              .groups = u32(given.size(3) / 8),
              .scaled_heads = u32(heads),
              .operand = operand});
  return copy;
}

Attention converted(const char* op, const Attention& a, const Tensor& scales) {
  Attention copy = a;
  copy.q = converted(op, a.q, 0, scales, a.q.size(1));
  copy.k = converted(op, a.k, 1, scales, a.q.size(1));
  copy.v = converted(op, a.v, 2, scales, a.q.size(1));
  return copy;
}

template <class Launch>
void bind_scales(Launch& launch, const Tensor& scales) {
  if (scales.defined()) {
    launch.scales_as(DType::kBits64, scales);
  }
}

void run_forward_blocks(const Attention& a, const Outputs& to, const AttentionBlocks& blocks,
                        const Tensor& scales = {}) {
  namespace kernel = kernels::attention_blocks;
  const AttentionShape shape = a.shape();
  kernel::Launch launch(kForwardOp);
  bind_scales(launch, scales);
  kernel::Params p;
  bind_outputs(launch, p, to);
  bind_operands(launch, p, a, Grouping({&a.q, &a.k, &a.v}));
  bind_draws(launch, a.dropout);
  run_blocks<kernel::Regions>(launch, p, a, blocks, shape.queries, shape.heads * shape.batches,
                              shape.value_dims);
}

// The constant and the grid of the kernels on subgroup matrices, and the dispatch. A workgroup
// takes `rows` of `length` rows.
template <class Regions, class Launch, class Params>
void run_matrices(Launch& launch, Params& p, const Attention& a, bool wide, int64_t rows,
                  int64_t length, int64_t heads, bool of_keys = false) {
  constexpr int64_t kStep = 16;
  launch.wide(wide);
  p.one = 1;
  p.tiles = u32(ceil_div(length, rows));
  p.workgroups = p.tiles * u32(heads);
  run_scores<Regions>(launch, p, a, of_keys ? ScoreTile{kStep, rows} : ScoreTile{rows, kStep});
}

// `apart`: a second dispatch repeats what failed.
void run_forward_matrix(const Attention& given, const Outputs& to, bool apart,
                        const Tensor& scales = {}) {
  namespace kernel = kernels::attention_matrix;
  constexpr int64_t kRows = 128;
  const AttentionShape shape = given.shape();
  const bool once = converts_once(given, scales);
  const Attention a = once ? converted(kForwardOp, given, scales) : given;
  const auto run = [&](auto&& bind_walks) {
    kernel::Launch launch(kForwardOp);
    launch.converted(once);
    bind_scales(launch, scales);
    kernel::Params p;
    bind_outputs(launch, p, to);
    bind_operands(launch, p, a, Grouping(DType::kBits128));
    bind_draws(launch, a.dropout);
    constexpr int64_t kWide = 128;
    launch.full(shape.dims == kWide && shape.value_dims == kWide);
    bind_walks(launch);
    run_matrices<kernel::Regions>(launch, p, a, is_wide(shape), kRows, shape.queries,
                                  shape.heads * shape.batches);
  };
  if (!apart) {
    run([](auto&) {});
    return;
  }
  const int64_t workgroups = ceil_div(shape.queries, kRows) * shape.heads * shape.batches;
  const Tensor failed = empty_webgpu({workgroups}, at::kInt, a.q.device());
  run([&](auto& launch) { launch.failed(failed); });
  run([&](auto& launch) { launch.redo(failed); });
}

// Each head is computed by one of two kernels, and the other one leaves it out.
void run_forward_scaled(const Attention& a, const Outputs& to, const AttentionStrategy& row) {
  const Tensor scales = scales_of(kForwardOp, a);
  run_forward_matrix(a, to, row.walks_apart, scales);
  run_forward_blocks(a, to, row.blocks, scales);
}

uint32_t power_of_two(int64_t least) { return std::bit_ceil(u32(std::max<int64_t>(least, 1))); }

// What the kernels of few queries write of each split of the keys: groups of four float32.
Tensor parts_of_splits(const AttentionShape& shape, uint32_t splits, const Tensor& on) {
  return empty_webgpu({shape.batches, shape.heads, shape.queries, int64_t{splits},
                       4 * (ceil_div(shape.value_dims, int64_t{4}) + 1)},
                      at::kFloat, on.device());
}

void run_combine(const Outputs& to, const Tensor& parts) {
  namespace kernel = kernels::attention_combine;
  constexpr uint32_t kInvocations = 128; // of attention_combine.wgsl
  kernel::Launch launch(kForwardOp);
  kernel::Params p;
  launch.parts_as(DType::kBits128, parts);
  bind_outputs(launch, p, to);
  p.batches = u32(to.out.size(0));
  p.heads = u32(to.out.size(1));
  p.queries = u32(to.out.size(2));
  p.value_dims = u32(to.out.size(3));
  p.splits = u32(parts.size(3));
  p.value_lanes = power_of_two(ceil_div(to.out.size(3), int64_t{4}));
  p.reach = std::min(std::bit_ceil(p.splits), kInvocations) / 2;
  launch.run(p);
}

// The operands of these kernels, the dispatch, and with several splits the one that puts them
// together. There are p.workgroups for each split.
template <class Launch, class Params>
void run_splits(Launch& launch, Params& p, const Attention& a, const Outputs& to, int64_t keys,
                const Grouping& grouping) {
  p.splits = u32(ceil_div(keys, int64_t{p.split_keys}));
  p.workgroups *= p.splits;
  Tensor parts;
  if (p.splits > 1) {
    parts = parts_of_splits(a.shape(), p.splits, a.q);
    launch.parts_as(DType::kBits128, parts);
  } else {
    bind_outputs(launch, p, to);
  }
  bind_operands(launch, p, a, grouping);
  bind_draws(launch, a.dropout);
  launch.run(p, launch.grid_of_groups(p.workgroups));
  if (parts.defined()) {
    run_combine(to, parts);
  }
}

// Keys of a split: a multiple of `step`. There are as many splits as fill the device with
// `enough` workgroups, but none has fewer keys than `least`.
uint32_t keys_of_split(int64_t keys, int64_t workgroups, int64_t enough, int64_t least,
                       int64_t step) {
  const int64_t splits = std::clamp<int64_t>(enough / workgroups, 1, ceil_div(keys, least));
  return u32(ceil_div(ceil_div(keys, splits), step) * step);
}

// Keys that some query sees.
int64_t keys_seen(const Attention& a) {
  return a.causal ? std::min(a.k.size(2), a.q.size(2)) : a.k.size(2);
}

void run_stream(const Attention& a, const Outputs& to) {
  namespace kernel = kernels::attention_stream;
  constexpr uint32_t kInvocations = 128;
  // Of workgroups_to_fill: two workgroups for each processor. The registers of more do not fit, so
  // that further ones would run after these.
  constexpr uint32_t kShare = 8;
  constexpr uint32_t kLeastFull = 16; // workgroups that fill the smallest device
  constexpr int64_t kLeastKeys = 256; // of a split: a workgroup's own work outweighs the combining
  const AttentionShape shape = a.shape();
  const ShaderTarget& target = plan_target(a.q);
  AttentionShape aligned = shape;
  aligned.vectors = true;
  const AttentionTeam team = attention_team(aligned, target).value();
  const int64_t unit = 16 / a.q.itemsize();
  const uint32_t rows = std::min(power_of_two(shape.group * shape.queries), 8U);
  const bool eight_keys = team.width >= 8 && rows < 8 && team.groups == 1;
  // The results of two rows of all teams take up to 8 KiB of workgroup memory.
  const uint32_t threads = std::clamp(128 * team.lanes / (team.width * team.groups),
                                      std::max(team.lanes, 16U), kInvocations);
  const uint32_t step = threads / team.width * (eight_keys ? 8 : 4);
  kernel::Params p;
  p.row_blocks = u32(ceil_div(shape.group * shape.queries, int64_t{rows}));
  p.workgroups = u32(p.row_blocks * shape.heads / shape.group * shape.batches);
  const int64_t keys = keys_seen(a);
  p.split_keys =
      keys_of_split(keys, p.workgroups, std::max(target.workgroups_to_fill / kShare, kLeastFull),
                    kLeastKeys, step);
  kernel::Launch launch(kForwardOp);
  launch.halves(a.q.itemsize() == 2).eight_keys(eight_keys).threads(threads);
  launch.width(team.width).lanes(team.lanes);
  launch.most_rows(rows == 1   ? kernel::MostRows::one_row
                   : rows == 2 ? kernel::MostRows::two_rows
                   : rows == 4 ? kernel::MostRows::four_rows
                               : kernel::MostRows::eight_rows);
  launch.groups(team.groups == 1   ? kernel::Groups::one_group
                : team.groups == 2 ? kernel::Groups::two_groups
                                   : kernel::Groups::four_groups);
  const int64_t elements = team.width * team.groups * unit;
  launch.whole(shape.dims == elements && shape.value_dims == elements);
  run_splits(launch, p, a, to, keys, Grouping(DType::kBits128));
}

void run_decode(const Attention& a, const Outputs& to) {
  namespace kernel = kernels::attention_decode;
  constexpr int64_t kQueryGroups = 256; // of attention_decode.wgsl
  constexpr uint32_t kKeyGroups = 576;
  constexpr int64_t kLeastKeys = 256; // of a split: a workgroup's own work outweighs the combining
  const AttentionShape shape = a.shape();
  const ShaderTarget& target = plan_target(a.q);
  const int64_t groups = ceil_div(shape.dims, int64_t{4});
  const uint32_t most = std::bit_floor(u32(std::min<int64_t>(kQueryGroups / groups, 8)));
  const uint32_t rows = std::min(power_of_two(shape.group * shape.queries), most);
  kernel::Params p;
  p.pitch = u32(groups) | 1U;
  p.block = std::min(std::bit_floor(kKeyGroups / p.pitch), 64U);
  p.value_lanes = power_of_two(ceil_div(shape.value_dims, int64_t{4}));
  p.row_blocks = u32(ceil_div(shape.group * shape.queries, int64_t{rows}));
  p.workgroups = u32(p.row_blocks * shape.heads / shape.group * shape.batches);
  const int64_t keys = keys_seen(a);
  p.split_keys =
      keys_of_split(keys, p.workgroups, target.workgroups_to_fill, kLeastKeys, int64_t{p.block});
  kernel::Launch launch(kForwardOp);
  launch.rows(rows);
  run_splits(launch, p, a, to, keys, Grouping({&a.q, &a.k, &a.v}));
}

void run_forward(const Attention& a, const Outputs& to) {
  const AttentionStrategy& row = strategy_for(kForwardOp, a, AttentionPass::kForward);
  switch (row.kernel) {
  case AttentionKernel::kStream:
    run_stream(a, to);
    break;
  case AttentionKernel::kDecode:
    run_decode(a, to);
    break;
  case AttentionKernel::kMatrix:
    run_forward_matrix(a, to, row.walks_apart);
    break;
  case AttentionKernel::kScaled:
    run_forward_scaled(a, to, row);
    break;
  case AttentionKernel::kBlocks:
    run_forward_blocks(a, to, row.blocks);
    break;
  case AttentionKernel::kTiles:
    run_forward_tiles(a, to, row.tile);
    break;
  }
}

// What attention_delta.wgsl describes, and room for the totals of the queries behind it.
Tensor pairs_of(const Gradients& to, const Dropout& dropout) {
  namespace kernel = kernels::attention_delta;
  const Tensor& out = to.out;
  Tensor pairs = empty_webgpu({2 * (to.lse.numel() + 1)}, at::kLong, out.device());
  kernel::Launch launch(kBackwardOp);
  launch.pairs_as(DType::kBits64, pairs).lse(to.lse).bfloat(out.scalar_type() == at::kBFloat16);
  const Grouping grouping({&out, &to.g});
  grouping.bind(out, [&](auto&&... range) { launch.out_range(range...); });
  grouping.bind(to.g, [&](auto&&... range) { launch.g_range(range...); });
  bind_draws(launch, dropout);
  launch.run({.out_strides = strides_of(out),
              .g_strides = strides_of(to.g),
              .lse_batch = u32(to.lse.stride(0)),
              .lse_head = u32(to.lse.stride(1)),
              .batches = u32(out.size(0)),
              .heads = u32(out.size(1)),
              .queries = u32(out.size(2)),
              .value_dims = u32(out.size(3))});
  return pairs;
}

// What the kernels of the gradients take, beside what the forward ones do.
template <class Launch, class Params>
void bind_gradients(Launch& launch, Params& p, const Attention& a, const Gradients& to,
                    const Tensor& pairs, const Grouping& grouping) {
  bind_operands(launch, p, a, grouping);
  launch.pairs_as(DType::kBits64, pairs);
  p.batches = u32(a.q.size(0));
  grouping.bind(to.g, [&](auto&&... range) { launch.g_range(range...); });
  p.g_strides = strides_of(to.g);
}

template <class Launch, class Params>
void bind_dq(Launch& launch, Params& p, const Tensor& dq) {
  launch.dq(dq);
  if (owns_words(dq)) {
    launch.own_words_of_dq();
  }
  p.dq_strides = strides_of(dq);
}

template <class Launch, class Params>
void bind_dk_and_dv(Launch& launch, Params& p, const Tensor& dk, const Tensor& dv) {
  launch.dk(dk).dv(dv);
  if (owns_words(dk)) {
    launch.own_words_of_dk();
  }
  if (owns_words(dv)) {
    launch.own_words_of_dv();
  }
  p.dk_strides = strides_of(dk);
  p.dv_strides = strides_of(dv);
}

Tensor or_like(const Tensor& wanted, const Tensor& like) {
  return wanted.defined() ? wanted : at::empty_like(like);
}

// The dispatch of a kernel for the queries' gradient. `run` dispatches what is bound.
template <class Launch, class Params, class Run>
void run_dq(const Attention& a, const Gradients& to, const Tensor& pairs, const Grouping& grouping,
            Run&& run) {
  Launch launch(kBackwardOp);
  Params p;
  bind_dq(launch, p, or_like(to.dq, a.q));
  bind_gradients(launch, p, a, to, pairs, grouping);
  run(launch, p);
}

// The same for the keys' and values' gradients, if either is wanted.
template <class Launch, class Params, class Run>
void run_dk_and_dv(const Attention& a, const Gradients& to, const Tensor& pairs,
                   const Grouping& grouping, Run&& run) {
  if (!to.dk.defined() && !to.dv.defined()) {
    return;
  }
  Launch launch(kBackwardOp);
  Params p;
  bind_dk_and_dv(launch, p, or_like(to.dk, a.k), or_like(to.dv, a.v));
  bind_gradients(launch, p, a, to, pairs, grouping);
  run(launch, p);
}

// The gradient of the queries comes first in each way, also where it is not wanted: the gradients
// of keys and values need the totals that it finds.

void run_backward_tiles(const Attention& a, const Gradients& to, const Tensor& pairs,
                        const AttentionTile& tile) {
  namespace queries = kernels::attention_gradient_queries;
  namespace keys = kernels::attention_gradient_keys;
  const AttentionShape shape = a.shape();
  const Grouping grouping({&a.q, &a.k, &a.v, &to.g});
  run_dq<queries::Launch, queries::Params>(a, to, pairs, grouping, [&](auto& launch, auto& p) {
    if (to.ds.defined()) {
      launch.ds(to.ds);
    }
    run_tiles<queries::Regions>(launch, p, a, tile, shape.queries, shape.heads * shape.batches,
                                shape.dims);
  });
  if (to.ds.defined()) {
    const Tensor totals = pairs.slice(0, to.lse.numel() + 2).view(at::kFloat).slice(0, 0, {}, 2);
    to.ds.mul_(totals.view(to.lse.sizes()).unsqueeze(3));
  }
  run_dk_and_dv<keys::Launch, keys::Params>(a, to, pairs, grouping, [&](auto& launch, auto& p) {
    run_tiles<keys::Regions>(launch, p, a, tile, shape.keys, a.k.size(1) * shape.batches,
                             shape.widest(), /*of_keys=*/true);
  });
}

// What stored.wgsl describes: some heads after the others, whose weights and gradients of scores
// take turns in one tensor. `run_queries` and `run_sums` take what binds it, and how many heads
// there are.
template <class RunQueries, class RunSums>
void run_stored(const Attention& a, const AttentionStrategy& row, RunQueries&& run_queries,
                RunSums&& run_sums) {
  constexpr int64_t kGroup = 16; // bytes
  const AttentionShape shape = a.shape();
  const StoredScores stored = *stored_scores(row, shape, plan_target(a.q));
  const Tensor memory =
      empty_webgpu({stored.heads * stored.groups_of_head * kGroup}, at::kByte, a.q.device());
  const int64_t all = shape.heads * shape.batches;
  for (int64_t first = 0; first < all; first += stored.heads) {
    const int64_t heads = std::min(stored.heads, all - first);
    const auto bind = [&](auto& launch, auto& p) {
      launch.stored_as(DType::kBits128, memory);
      p.first_of_call = u32(first);
      p.heads_of_dispatch = u32(heads);
      p.groups_of_head = u32(stored.groups_of_head);
    };
    run_queries(bind, heads);
    run_sums(bind, heads);
  }
}

// The gradients that a call computes, also those that nobody wants.
Gradients with_all(const Attention& a, const Gradients& to) {
  Gradients all = to;
  all.dq = or_like(to.dq, a.q);
  all.dk = or_like(to.dk, a.k);
  all.dv = or_like(to.dv, a.v);
  return all;
}

void run_backward_stored_blocks(const Attention& a, const Gradients& wanted, const Tensor& pairs,
                                const AttentionStrategy& row) {
  namespace queries = kernels::attention_blocks_queries;
  namespace sums = kernels::attention_blocks_stored;
  constexpr int64_t kKeys = 128; // of attention_blocks_stored.wgsl
  constexpr int64_t kDims = 64;
  const AttentionShape shape = a.shape();
  const Gradients to = with_all(a, wanted);
  const Grouping grouping({&a.q, &a.k, &a.v, &to.g});
  Attention of_sums = a;
  of_sums.bias = Tensor();
  of_sums.dropout = {};
  run_stored(
      a, row,
      [&](auto&& bind, int64_t heads) {
        run_dq<queries::Launch, queries::Params>(
            a, to, pairs, grouping, [&](auto& launch, auto& p) {
              bind(launch, p);
              run_blocks<queries::Regions>(launch, p, a, row.blocks, shape.queries, heads,
                                           shape.dims);
            });
      },
      [&](auto&& bind, int64_t heads) {
        run_dk_and_dv<sums::Launch, sums::Params>(
            of_sums, to, pairs, grouping, [&](auto& launch, auto& p) {
              bind(launch, p);
              launch.stored_rows(row.blocks.rows()).stored_columns(row.blocks.columns());
              p.one = 1;
              p.tiles = u32(ceil_div(shape.keys, kKeys));
              p.tiles_of_dims = u32(ceil_div(shape.widest(), kDims));
              p.workgroups = 2 * p.tiles_of_dims * p.tiles * u32(heads / shape.group);
              launch.run(p, launch.grid_of_groups(p.workgroups));
            });
      });
}

void run_backward_blocks(const Attention& a, const Gradients& to, const Tensor& pairs,
                         const AttentionStrategy& row, const Tensor& scales = {}) {
  namespace queries = kernels::attention_blocks_queries;
  namespace keys = kernels::attention_blocks_keys;
  if (row.stored && !scales.defined() && (to.dk.defined() || to.dv.defined())) {
    run_backward_stored_blocks(a, to, pairs, row);
    return;
  }
  const AttentionShape shape = a.shape();
  const Grouping grouping({&a.q, &a.k, &a.v, &to.g});
  run_dq<queries::Launch, queries::Params>(a, to, pairs, grouping, [&](auto& launch, auto& p) {
    bind_scales(launch, scales);
    run_blocks<queries::Regions>(launch, p, a, row.blocks, shape.queries,
                                 shape.heads * shape.batches, shape.dims);
  });
  run_dk_and_dv<keys::Launch, keys::Params>(a, to, pairs, grouping, [&](auto& launch, auto& p) {
    bind_scales(launch, scales);
    run_blocks<keys::Regions>(launch, p, a, row.key_blocks, shape.keys, a.k.size(1) * shape.batches,
                              shape.widest(), /*of_keys=*/true);
  });
}

// The gradient of the result in groups of eight.
Tensor in_groups_of_eight(const Tensor& g) {
  // A clone also aligns what is contiguous.
  return has_groups(g, 8) ? g : g.clone(at::MemoryFormat::Contiguous);
}

// `of_sums`: the operands of the gradients of keys and values.
void run_backward_stored_matrix(const Attention& a, const Attention& of_sums,
                                const Gradients& wanted, const Tensor& pairs,
                                const AttentionStrategy& row, const Tensor& scales) {
  namespace queries = kernels::attention_matrix_queries;
  namespace sums = kernels::attention_matrix_stored;
  const AttentionShape shape = a.shape();
  const bool wide = is_wide(shape);
  const int64_t rows = rows_of_matrices(shape);
  const Gradients to = with_all(a, wanted);
  const Grouping grouping(DType::kBits128);
  run_stored(
      a, row,
      [&](auto&& bind, int64_t heads) {
        run_dq<queries::Launch, queries::Params>(
            a, to, pairs, grouping, [&](auto& launch, auto& p) {
              bind(launch, p);
              bind_scales(launch, scales);
              launch.converted(scales.defined());
              run_matrices<queries::Regions>(launch, p, a, wide, rows, shape.queries, heads);
            });
      },
      [&](auto&& bind, int64_t heads) {
        run_dk_and_dv<sums::Launch, sums::Params>(
            of_sums, to, pairs, grouping, [&](auto& launch, auto& p) {
              bind(launch, p);
              bind_scales(launch, scales);
              launch.converted(scales.defined()).wide(wide);
              p.one = 1;
              p.tiles = u32(ceil_div(shape.keys, rows));
              p.workgroups = p.tiles * u32(heads / shape.group);
              launch.run(p, launch.grid_of_groups(p.workgroups));
            });
      });
}

void run_backward_matrix(const Attention& given, const Gradients& wanted, const Tensor& pairs,
                         const AttentionStrategy& row, const Tensor& scales = {}) {
  namespace queries = kernels::attention_matrix_queries;
  namespace keys = kernels::attention_matrix_keys;
  const AttentionShape shape = given.shape();
  const bool wide = is_wide(shape);
  const int64_t rows = rows_of_matrices(shape);
  const Grouping grouping(DType::kBits128);
  const bool once = converts_once(given, scales, wanted.g);
  Attention a = once ? converted(kBackwardOp, given, scales) : given;
  Gradients to = wanted;
  if (once) {
    to.g = converted(kBackwardOp, wanted.g, 3, scales, shape.heads);
  }
  const bool of_keys = to.dk.defined() || to.dv.defined();
  if (row.stored && of_keys && once == scales.defined()) {
    Attention of_sums = a;
    of_sums.bias = Tensor();
    if (once) {
      of_sums.q = converted(kBackwardOp, given.q, 0, scales, shape.heads, pairs);
    }
    run_backward_stored_matrix(a, of_sums, to, pairs, row, scales);
    return;
  }
  run_dq<queries::Launch, queries::Params>(a, to, pairs, grouping, [&](auto& launch, auto& p) {
    bind_scales(launch, scales);
    launch.converted(once);
    run_matrices<queries::Regions>(launch, p, a, wide, rows, shape.queries,
                                   shape.heads * shape.batches);
  });
  if (once && of_keys) {
    a.q = converted(kBackwardOp, given.q, 0, scales, shape.heads, pairs);
  }
  run_dk_and_dv<keys::Launch, keys::Params>(a, to, pairs, grouping, [&](auto& launch, auto& p) {
    bind_scales(launch, scales);
    launch.converted(once);
    run_matrices<keys::Regions>(launch, p, a, wide, 64, shape.keys, a.k.size(1) * shape.batches,
                                /*of_keys=*/true);
  });
}

void run_backward_scaled(const Attention& a, const Gradients& to, const Tensor& pairs,
                         const AttentionStrategy& row) {
  const Tensor scales = scales_of(kBackwardOp, a, to.g, pairs);
  run_backward_matrix(a, to, pairs, row, scales);
  run_backward_blocks(a, to, pairs, row, scales);
}

void run_backward(const Attention& a, Gradients to) {
  const AttentionStrategy& row =
      strategy_for(kBackwardOp, a, AttentionPass::kBackward, to.ds.defined());
  const Tensor pairs = pairs_of(to, a.dropout);
  if (to.g_lse.defined()) {
    // The derivative of a logarithm by a score is the score's weight, as that of delta is.
    const int64_t rows = to.lse.numel();
    pairs.slice(0, 0, rows)
        .view(at::kFloat)
        .view({rows, 2})
        .select(1, 1)
        .sub_(to.g_lse.reshape({rows}));
  }
  switch (row.kernel) {
  case AttentionKernel::kMatrix:
    to.g = in_groups_of_eight(to.g);
    run_backward_matrix(a, to, pairs, row);
    break;
  case AttentionKernel::kScaled:
    to.g = in_groups_of_eight(to.g);
    run_backward_scaled(a, to, pairs, row);
    break;
  case AttentionKernel::kBlocks:
    run_backward_blocks(a, to, pairs, row);
    break;
  default:
    run_backward_tiles(a, to, pairs, row.tile);
  }
}

// ---- Tensors that a kernel cannot count, or bind

bool is_small(const Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) {
    return true;
  }
  const ShaderTarget& target = plan_target(tensor);
  const auto elements = static_cast<uint64_t>(extent(tensor));
  return elements < target.max_elements &&
         elements * tensor.itemsize() <= BindingList::safe_reach(target);
}

Tensor part_of(const Tensor& tensor, int64_t dim, int64_t begin, int64_t size) {
  return tensor.defined() ? tensor.narrow(dim, begin, size) : tensor;
}

// Calls run(dim, begin, size) for two parts of the batch, or of the heads of the keys. False if
// there is one of each.
template <class Run>
bool in_parts(const Attention& a, Run&& run) {
  const int64_t dim = a.q.size(0) > 1 ? 0 : 1;
  const int64_t size = a.k.size(dim);
  if (size < 2) {
    return false;
  }
  run(dim, int64_t{0}, size / 2);
  run(dim, size / 2, size - size / 2);
  return true;
}

Attention part_of(const Attention& a, int64_t dim, int64_t begin, int64_t size) {
  const int64_t each = dim == 1 ? a.q.size(1) / a.k.size(1) : 1;
  Dropout dropout = a.dropout;
  (dim == 0 ? dropout.first_batch : dropout.first_head) += begin * each;
  return {.q = part_of(a.q, dim, begin * each, size * each),
          .k = part_of(a.k, dim, begin, size),
          .v = part_of(a.v, dim, begin, size),
          .bias = part_of(a.bias, dim, begin * each, size * each),
          .causal = a.causal,
          .scale = a.scale,
          .dropout = dropout,
          .program = a.program};
}

void forward(const Attention& a, const Outputs& to) {
  const auto part = [&](int64_t dim, int64_t begin, int64_t size) {
    const int64_t each = dim == 1 ? a.q.size(1) / a.k.size(1) : 1;
    forward(part_of(a, dim, begin, size), {part_of(to.out, dim, begin * each, size * each),
                                           part_of(to.lse, dim, begin * each, size * each)});
  };
  const bool fits = is_small(a.q) && is_small(a.k) && is_small(a.v) && is_small(a.bias) &&
                    is_small(to.out) && is_small(to.lse);
  if (fits || !in_parts(a, part)) {
    run_forward(a, to);
  }
}

void backward(const Attention& a, const Gradients& to) {
  const auto part = [&](int64_t dim, int64_t begin, int64_t size) {
    const int64_t each = dim == 1 ? a.q.size(1) / a.k.size(1) : 1;
    const auto of_queries = [&](const Tensor& tensor) {
      return part_of(tensor, dim, begin * each, size * each);
    };
    backward(part_of(a, dim, begin, size), {.g = of_queries(to.g),
                                            .out = of_queries(to.out),
                                            .lse = of_queries(to.lse),
                                            .g_lse = of_queries(to.g_lse),
                                            .dq = of_queries(to.dq),
                                            .dk = part_of(to.dk, dim, begin, size),
                                            .dv = part_of(to.dv, dim, begin, size),
                                            .ds = of_queries(to.ds)});
  };
  const bool fits = is_small(a.q) && is_small(a.k) && is_small(a.v) && is_small(a.bias) &&
                    is_small(to.g) && is_small(to.out) && is_small(to.dq) && is_small(to.dk) &&
                    is_small(to.dv) && is_small(to.ds);
  if (fits || !in_parts(a, part)) {
    run_backward(a, to);
  }
}

// ---- The operators

void check_inputs(const char* op, const Tensor& query, const Tensor& key, const Tensor& value,
                  const std::optional<Tensor>& bias, double dropout) {
  const bool grouped = query.dim() == 4 && key.dim() == 4 && query.size(1) != key.size(1);
  const char* against = reason_against(query, key, value, bias, dropout, false, grouped);
  TORCH_CHECK_NOT_IMPLEMENTED(against == nullptr, op, "(): ", against);
}

Attention attention_of(const Tensor& query, const Tensor& key, const Tensor& value,
                       const Tensor& bias, Dropout dropout, bool causal,
                       std::optional<double> scale) {
  dropout.heads = query.size(1);
  Attention a{.q = query, .k = key, .v = value, .causal = causal, .dropout = std::move(dropout)};
  a.scale = static_cast<float>(scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(3)))));
  if (bias.defined()) {
    Tensor added = bias;
    if (bias.scalar_type() == at::kBool) {
      added = at::zeros_like(bias, bias.options().dtype(query.scalar_type()));
      added.masked_fill_(bias.logical_not(), -std::numeric_limits<double>::infinity());
    }
    a.bias = added.expand({query.size(0), query.size(1), query.size(2), key.size(2)});
  }
  return a;
}

// Takes numbers from the generator.
Dropout draw(double p, c10::Device device) {
  Dropout dropout{.p = p,
                  .seed = empty_webgpu({}, at::kLong, device),
                  .offset = empty_webgpu({}, at::kLong, device)};
  if (p > 0) {
    namespace kernel = kernels::attention_seed;
    constexpr uint64_t kDraws = 4; // of each block of four weights
    kernel::Launch launch(kForwardOp);
    launch.seed(dropout.seed).offset(dropout.offset);
    launch.run({.philox = philox_words(generator_of(std::nullopt, device).philox_state(kDraws))},
               launch.grid_of_groups(1));
  }
  return dropout;
}

// A result with the queries' order of dimensions in memory, as PyTorch's shape function gives it.
Tensor result_like(const Tensor& query, int64_t value_dims) {
  if (value_dims == query.size(3)) {
    return at::empty_like(query);
  }
  std::array<int64_t, 4> order = {0, 1, 2, 3};
  std::ranges::stable_sort(order, std::greater<>(), [&](int64_t d) { return query.stride(d); });
  std::array<int64_t, 4> sizes = {query.size(0), query.size(1), query.size(2), value_dims};
  std::array<int64_t, 4> strides{};
  int64_t stride = 1;
  for (int64_t i = 3; i >= 0; --i) {
    strides[order[i]] = stride;
    stride *= sizes[order[i]];
  }
  return empty_strided_webgpu(sizes, strides, query.options());
}

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>
fused_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                const std::optional<Tensor>& attn_bias, double dropout, bool causal,
                bool /*return_debug_mask*/, std::optional<double> scale) {
  check_inputs(kForwardOp, query, key, value, attn_bias, dropout);
  const Outputs to{
      result_like(query, value.size(3)),
      empty_webgpu({query.size(0), query.size(1), query.size(2)}, at::kFloat, query.device())};
  const Dropout dropped = draw(dropout, query.device());
  if (key.size(2) == 0) {
    to.out.zero_();
    to.lse.fill_(-std::numeric_limits<double>::infinity());
  } else if (query.numel() > 0) {
    forward(attention_of(query, key, value, attn_bias.value_or(Tensor()), dropped, causal, scale),
            to);
  }
  return {to.out,      to.lse,       Tensor(),       Tensor(), query.size(2),
          key.size(2), dropped.seed, dropped.offset, Tensor()};
}

std::tuple<Tensor, Tensor, Tensor, Tensor>
fused_attention_backward(const Tensor& grad_out, const Tensor& query, const Tensor& key,
                         const Tensor& value, const Tensor& attn_bias, std::array<bool, 4> wanted,
                         const Tensor& out, const Tensor& logsumexp, const Tensor& /*cum_seq_q*/,
                         const Tensor& /*cum_seq_k*/, int64_t /*max_q*/, int64_t /*max_k*/,
                         double dropout, bool causal, const Tensor& philox_seed,
                         const Tensor& philox_offset, std::optional<double> scale) {
  if (!grad_out.defined()) {
    return {};
  }
  const auto bias = attn_bias.defined() ? std::optional<Tensor>(attn_bias) : std::nullopt;
  check_inputs(kBackwardOp, query, key, value, bias, dropout);
  check_dtype(grad_out, query.scalar_type());
  const std::array<int64_t, 4> sizes = {query.size(0), query.size(1), query.size(2), value.size(3)};
  TORCH_CHECK(grad_out.sizes() == sizes && out.sizes() == sizes, kBackwardOp,
              "(): the result and its gradient have the shapes ", out.sizes(), " and ",
              grad_out.sizes(), " instead of ", at::IntArrayRef(sizes));
  TORCH_CHECK(logsumexp.sizes() == at::IntArrayRef(sizes).slice(0, 3) && logsumexp.stride(2) == 1 &&
                  logsumexp.scalar_type() == at::kFloat,
              kBackwardOp,
              "(): logsumexp is not float32 of the shape of query without its last "
              "dimension, which is contiguous");
  TORCH_CHECK(dropout == 0 || (philox_seed.defined() && philox_offset.defined()), kBackwardOp,
              "(): dropout without the seed and the offset of its random numbers");
  Gradients to{.g = grad_out, .out = out, .lse = logsumexp};
  to.dq = wanted[0] ? at::empty_like(query) : Tensor();
  to.dk = wanted[1] ? at::empty_like(key) : Tensor();
  to.dv = wanted[2] ? at::empty_like(value) : Tensor();
  const bool of_bias = wanted[3] && attn_bias.defined() && attn_bias.is_floating_point();
  if (of_bias) {
    to.ds = empty_webgpu({query.size(0), query.size(1), query.size(2), key.size(2)}, at::kFloat,
                         query.device());
    to.ds.zero_(); // what the kernel does not visit
  }
  if (query.numel() > 0 && key.numel() > 0) {
    const Dropout dropped{.p = dropout, .seed = philox_seed, .offset = philox_offset};
    backward(attention_of(query, key, value, attn_bias, dropped, causal, scale), to);
  } else {
    for (const Tensor& gradient : {to.dq, to.dk, to.dv}) {
      if (gradient.defined()) {
        gradient.zero_();
      }
    }
  }
  Tensor of_mask;
  if (of_bias) {
    of_mask = at::empty_like(attn_bias);
    of_mask.copy_(to.ds.sum_to_size(attn_bias.sizes()));
  }
  return {to.dq, to.dk, to.dv, of_mask};
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", fused_sdp_choice);
  m.impl("_scaled_dot_product_fused_attention_overrideable", fused_attention);
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", fused_attention_backward);
}

} // namespace

std::tuple<Tensor, Tensor> flex_attention(const Tensor& query, const Tensor& key,
                                          const Tensor& value, const ScoreProgram& program,
                                          double scale) {
  check_inputs("flex_attention", query, key, value, {}, 0.0);
  const Outputs to{
      result_like(query, value.size(3)),
      empty_webgpu({query.size(0), query.size(1), query.size(2)}, at::kFloat, query.device())};
  Attention a = attention_of(query, key, value, {}, {}, false, scale);
  a.program = program.is_trivial() ? nullptr : &program;
  if (key.size(2) == 0) {
    to.out.zero_();
    to.lse.fill_(-std::numeric_limits<double>::infinity());
  } else if (query.numel() > 0) {
    forward(a, to);
  }
  return {to.out, to.lse};
}

std::tuple<Tensor, Tensor, Tensor>
flex_attention_backward(const Tensor& grad_out, const std::optional<Tensor>& grad_lse,
                        const Tensor& query, const Tensor& key, const Tensor& value,
                        const Tensor& out, const Tensor& lse, const ScoreProgram& program,
                        double scale) {
  check_inputs("flex_attention", query, key, value, {}, 0.0);
  Gradients to{.g = grad_out, .out = out, .lse = lse};
  if (grad_lse) {
    to.g_lse = *grad_lse;
  }
  to.dq = at::empty_like(query);
  to.dk = at::empty_like(key);
  to.dv = at::empty_like(value);
  if (query.numel() > 0 && key.numel() > 0) {
    Attention a = attention_of(query, key, value, {}, {}, false, scale);
    a.program = program.is_trivial() && !program.changes_gradients ? nullptr : &program;
    backward(a, to);
  } else {
    for (const Tensor& gradient : {to.dq, to.dk, to.dv}) {
      gradient.zero_();
    }
  }
  return {to.dq, to.dk, to.dv};
}

std::pair<Tensor, Tensor> attention_scales(const Tensor& q, const Tensor& k, const Tensor& v,
                                           double scale, const std::optional<Tensor>& g) {
  const Attention a{.q = q, .k = k, .v = v, .scale = static_cast<float>(scale)};
  if (!g) {
    return {scales_of(kForwardOp, a), Tensor()};
  }
  const int64_t rows = q.size(0) * q.size(1) * q.size(2);
  const Tensor pairs = empty_webgpu({2 * (rows + 1)}, at::kLong, q.device());
  const Tensor scales = scales_of(kBackwardOp, a, *g, pairs);
  return {scales, pairs.slice(0, rows + 2)};
}

} // namespace torch_webgpu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torch_webgpu::fused_sdp_choice)
} // namespace at::native
