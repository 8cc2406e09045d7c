#include "ops/sort/sort_launch.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/empty.h"
#include "wgsl/kernel_source.h"
#include "launch/binding_list.h"
#include "launch/common.h"
#include "launch/dtypes.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

constexpr PipelineFamily kFamily = PipelineFamily::kSort;
constexpr uint32_t kBlock = 1024;
constexpr uint32_t kWorkgroup = 256;
// Above it, keeping the first k of every block shrinks the row too slowly: sort it all.
constexpr int64_t kMaxSelected = 256;

// Mirrors Params of sort_block.wgsl.
struct BlockParams {
  uint32_t segments;
  uint32_t row;
  uint32_t blocks;
  uint32_t width;
  uint32_t limit;
  uint32_t out_row;
  uint32_t descending;
  uint32_t in_offset;
  uint32_t in_row;
  uint32_t values_offset;
  uint32_t indices_offset;
};

// Mirrors Params of sort_merge.wgsl.
struct MergeParams {
  uint32_t count;
  uint32_t row;
  uint32_t run;
  uint32_t in_offset;
  uint32_t values_offset;
  uint32_t indices_offset;
};

// Keys and positions of elements on their way.
struct Items {
  Tensor keys;
  Tensor indices;
};

// What the kernels of one sort have in common.
class RowSort {
public:
  RowSort(const char* name, const Tensor& in, const Tensor& values, const Tensor& indices)
      : name_(name), in_(in), values_(values), indices_(indices),
        dtype_(*native_dtype(in.scalar_type())),
        key_(info(dtype_).kind == Kind::kLong ? DType::kBits64 : DType::kBits32),
        rows_(in.numel() / in.size(-1)) {}

  Items new_items(int64_t row) const {
    return {empty_webgpu({rows_ * row}, key_ == DType::kBits64 ? at::kLong : at::kInt),
            empty_webgpu({rows_ * row}, at::kInt)};
  }

  // One row of the source is in_'s (from == nullptr) or `row` items; writes `limit` elements of
  // every block, to `to` or as results.
  void sort_blocks(const Items* from, int64_t row, int64_t limit, bool descending,
                   const Items* to) {
    BlockParams params{};
    params.row = static_cast<uint32_t>(row);
    params.width = std::min(kBlock, std::bit_ceil(params.row));
    params.blocks = (params.row + params.width - 1) / params.width;
    params.segments = static_cast<uint32_t>(rows_) * params.blocks;
    params.limit = static_cast<uint32_t>(limit);
    params.out_row = to != nullptr ? static_cast<uint32_t>(to->keys.numel() / rows_) : params.limit;
    params.descending = descending ? 1 : 0;
    params.in_offset = element_begin(in_);
    params.in_row = static_cast<uint32_t>(in_.size(-1));
    params.values_offset = element_begin(values_);
    params.indices_offset = element_begin(indices_);
    const uint32_t shared_segments = kBlock / params.width;
    const uint64_t groups = (params.segments + shared_segments - 1) / shared_segments;
    run("sort_block", from, to, params, context().stream.grid_1d(groups, 1));
  }

  void merge(const Items& from, int64_t run_length, const Items* to) {
    MergeParams params{};
    params.row = static_cast<uint32_t>(in_.size(-1));
    params.count = static_cast<uint32_t>(rows_) * params.row;
    params.run = static_cast<uint32_t>(run_length);
    params.in_offset = element_begin(in_);
    params.values_offset = element_begin(values_);
    params.indices_offset = element_begin(indices_);
    run("sort_merge", &from, to, params, context().stream.grid_1d(params.count, kWorkgroup));
  }

private:
  // The bindings that a kernel needs follow from where its items come from and go to.
  template <typename Params>
  void run(const char* file, const Items* from, const Items* to, const Params& params, Grid grid) {
    const bool is_merge = std::string_view(file) == "sort_merge";
    BindingList bindings(name_);
    std::vector<Operand> operands;
    OperandKey operand_key;
    auto bind = [&](std::string_view operand, const Tensor& tensor, DType dtype, bool writable) {
      operands.push_back(bindings.operand(operand, tensor, dtype, writable));
      operand_key.add(dtype, operands.back().slot);
    };
    if (to != nullptr) {
      bind("out_keys", to->keys, key_, true);
      bind("out_indices", to->indices, DType::kBits32, true);
    } else {
      bind("values", values_, raw_dtype(values_.scalar_type()), true);
      bind("indices_long", indices_, DType::kBits64, true);
    }
    if (from != nullptr) {
      bind("keys", from->keys, key_, false);
      bind("indices", from->indices, DType::kBits32, false);
    }
    if (from == nullptr) {
      bind("in", in_, dtype_, false);
    }
    if (to == nullptr) {
      // Results are copies of elements: a key does not tell which zero or NaN it was.
      bind("raw", in_, raw_dtype(in_.scalar_type()), false);
    }
    Context& ctx = context();
    const PipelineKey key =
        operand_key.in({kFamily, static_cast<uint64_t>(dtype_) | (from != nullptr ? 1u << 8 : 0u) |
                                     (to != nullptr ? 1u << 9 : 0u) | (is_merge ? 1u << 10 : 0u)});
    const Pipeline& pipeline = ctx.pipelines.get(bindings.key(key), [&] {
      KernelSource text = source(file, operands, from, to, is_merge);
      text.windows = bindings.windows();
      return build_kernel(name_, text);
    });
    bindings.dispatch(pipeline, params, grid);
  }

  KernelSource source(const char* file, const std::vector<Operand>& operands, const Items* from,
                      const Items* to, bool is_merge) const {
    KernelSource source;
    source.file = file;
    source.operands = operands;
    source.hooks = {{"key", sort_key_hook(dtype_)}};
    if (!is_merge && from != nullptr) {
      source.hooks.emplace_back("source", "fn source(row: u32, position: u32) -> Item {\n"
                                          "  let i = row * p.row + position;\n"
                                          "  return Item(load_keys(i), load_indices(i));\n}");
    }
    source.hooks.emplace_back("emit", is_merge ? merge_emit(to) : block_emit(to));
    return source;
  }

  static std::string block_emit(const Items* to) {
    if (to != nullptr) {
      return "fn emit(row: u32, i: u32, item: Item) {\n"
             "  store_out_keys(i, item.key);\n  store_out_indices(i, item.index);\n}";
    }
    return "fn emit(row: u32, i: u32, item: Item) {\n"
           "  if (item.index == no_index) { return; }\n"
           "  let element = load_raw(p.in_offset + row * p.in_row + item.index);\n"
           "  store_values(p.values_offset + i, element);\n"
           "  store_indices_long(p.indices_offset + i, vec2<u32>(item.index, 0u));\n}";
  }

  static std::string merge_emit(const Items* to) {
    if (to != nullptr) {
      return "fn emit(row_start: u32, place: u32, key: key_t, index: u32) {\n"
             "  store_out_keys(place, key);\n  store_out_indices(place, index);\n}";
    }
    return "fn emit(row_start: u32, place: u32, key: key_t, index: u32) {\n"
           "  store_values(p.values_offset + place, load_raw(p.in_offset + row_start + index));\n"
           "  store_indices_long(p.indices_offset + place, vec2<u32>(index, 0u));\n}";
  }

  const char* name_;
  const Tensor& in_;
  const Tensor& values_;
  const Tensor& indices_;
  DType dtype_;
  DType key_;
  int64_t rows_;
};

} // namespace

std::string sort_key_hook(DType dtype) {
  const Kind kind = info(dtype).kind;
  if (kind == Kind::kLong) {
    return "alias key_t = vec2<u32>;\n"
           "const last_key = vec2<u32>(0xffffffffu, 0xffffffffu);\n"
           "fn key_less(a: key_t, b: key_t) -> bool { return lt_ul(a, b); }\n"
           "fn key_of(v: vec2<u32>) -> key_t { return vec2<u32>(v.x, v.y ^ 0x80000000u); }";
  }
  std::string text = "alias key_t = u32;\nconst last_key = 0xffffffffu;\n"
                     "fn key_less(a: u32, b: u32) -> bool { return a < b; }\n";
  if (kind == Kind::kInt) {
    return text + "fn key_of(v: i32) -> u32 { return bitcast<u32>(v) ^ 0x80000000u; }";
  }
  // NaN last, whatever its sign; the two zeros equal.
  return text + "fn key_of(v: f32) -> u32 {\n"
                "  let bits = bitcast<u32>(v);\n"
                "  if (is_nan_f(v)) { return last_key; }\n"
                "  if (bits == 0x80000000u) { return bits; }\n"
                "  return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);\n}";
}

void sort_rows(const char* name, const Tensor& in, int64_t k, bool descending, const Tensor& values,
               const Tensor& indices) {
  if (in.numel() == 0 || k == 0) {
    return;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(in.numel() < int64_t{1} << 31, name, "(): more than 2^31 elements");
  RowSort sort(name, in, values, indices);
  const int64_t row = in.size(-1);
  if (row <= kBlock) {
    sort.sort_blocks(nullptr, row, k, descending, nullptr);
    return;
  }
  auto blocks_of = [](int64_t length) { return (length + kBlock - 1) / kBlock; };
  if (k <= kMaxSelected) {
    int64_t length = blocks_of(row) * k;
    Items items = sort.new_items(length);
    sort.sort_blocks(nullptr, row, k, descending, &items);
    while (length > kBlock) {
      const int64_t shorter = blocks_of(length) * k;
      Items next = sort.new_items(shorter);
      sort.sort_blocks(&items, length, k, descending, &next);
      items = std::move(next);
      length = shorter;
    }
    sort.sort_blocks(&items, length, k, descending, nullptr);
    return;
  }
  if (k < row) {
    const Tensor all = empty_webgpu(in.sizes(), in.options());
    const Tensor places = empty_webgpu(in.sizes(), at::kLong);
    sort_rows(name, in, row, descending, all, places);
    values.copy_(all.narrow(-1, 0, k));
    indices.copy_(places.narrow(-1, 0, k));
    return;
  }
  Items items = sort.new_items(row);
  Items other = sort.new_items(row);
  sort.sort_blocks(nullptr, row, kBlock, descending, &items);
  for (int64_t run = kBlock; run < row; run *= 2) {
    sort.merge(items, run, 2 * run < row ? &other : nullptr);
    std::swap(items, other);
  }
}

} // namespace torch_webgpu
