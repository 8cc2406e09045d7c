#include "ops/sort/sort_launch.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "backend/empty.h"
#include "kernels/sort_block.h"
#include "kernels/sort_merge.h"
#include "launch/dtypes.h"
#include "launch/halves.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

constexpr uint32_t kBlock = 1024;
// For a larger k, keeping the first k elements of every block shrinks a row too slowly. The whole
// row is sorted instead.
constexpr int64_t kMaxSelected = 256;

// An intermediate result: the keys of elements, and their positions in their rows.
struct Items {
  Tensor keys;
  Tensor indices;
};

// The operands and sizes that all dispatches of one sort share.
class RowSort {
public:
  RowSort(const char* name, const Tensor& in, const Tensor& values, const Tensor& positions)
      : name_(name), in_(in), values_(values), positions_(positions),
        long_keys_(in.scalar_type() == at::kLong), rows_(in.numel() / in.size(-1)) {}

  Items new_items(int64_t row) const {
    return {empty_webgpu({rows_ * row * (long_keys_ ? 2 : 1)}, at::kInt, in_.device()),
            empty_webgpu({rows_ * row}, at::kInt, in_.device())};
  }

  // Sorts the blocks of each row and writes the first `limit` elements of every block. Rows have
  // `row` elements and are those of `from`, or of in_ if `from` is null. Writes to `to`, or to the
  // results if `to` is null.
  void sort_blocks(const Items* from, int64_t row, int64_t limit, bool descending,
                   const Items* to) {
    namespace kernel = kernels::sort_block;
    kernel::Params params;
    params.row = static_cast<uint32_t>(row);
    params.width = std::min(kBlock, std::bit_ceil(params.row));
    params.blocks = (params.row + params.width - 1) / params.width;
    params.segments = static_cast<uint32_t>(rows_) * params.blocks;
    params.limit = static_cast<uint32_t>(limit);
    params.out_row =
        to != nullptr ? static_cast<uint32_t>(to->indices.numel() / rows_) : params.limit;
    params.descending = descending ? 1 : 0;
    params.in_row = static_cast<uint32_t>(in_.size(-1));
    const uint32_t shared_segments = kBlock / params.width;
    const uint64_t groups = (params.segments + shared_segments - 1) / shared_segments;

    kernel::Launch launch(name_);
    bind_output(launch, to);
    if (from != nullptr) {
      launch.keys_as(DType::kBits32, from->keys).indices_as(DType::kBits32, from->indices);
    }
    launch.in(in_);
    if (to == nullptr) {
      launch.raw_as(raw_dtype(in_.scalar_type()), in_);
    }
    launch.run(params, launch.grid_of_groups(groups));
  }

  void merge(const Items& from, int64_t run_length, const Items* to) {
    namespace kernel = kernels::sort_merge;
    kernel::Params params;
    params.row = static_cast<uint32_t>(in_.size(-1));
    params.count = static_cast<uint32_t>(rows_) * params.row;
    params.run = static_cast<uint32_t>(run_length);

    kernel::Launch launch(name_);
    bind_output(launch, to);
    launch.keys_as(DType::kBits32, from.keys).indices_as(DType::kBits32, from.indices);
    if (to == nullptr) {
      launch.in(in_);
    }
    launch.long_keys(long_keys_);
    launch.run(params, launch.grid_of(params.count));
  }

private:
  template <class Launch>
  void bind_output(Launch& launch, const Items* to) const {
    if (to != nullptr) {
      launch.out_keys_as(DType::kBits32, to->keys).out_indices_as(DType::kBits32, to->indices);
    } else {
      launch.values(values_).positions(positions_);
    }
  }

  const char* name_;
  const Tensor& in_;
  const Tensor& values_;
  const Tensor& positions_;
  bool long_keys_;
  int64_t rows_;
};

} // namespace

void sort_rows(const char* name, const Tensor& in, int64_t k, bool descending, const Tensor& values,
               const Tensor& indices) {
  if (in.numel() == 0 || k == 0) {
    return;
  }
  if (!is_countable(in)) {
    const bool halved =
        in_halves(in.sizes(), in.dim() - 1, [&](int64_t along, int64_t begin, int64_t size) {
          sort_rows(name, in.narrow(along, begin, size), k, descending,
                    values.narrow(along, begin, size), indices.narrow(along, begin, size));
        });
    TORCH_CHECK_NOT_IMPLEMENTED(halved, name, "(): a row of more than 2^31 elements");
    return;
  }
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
    const Tensor places = empty_webgpu(in.sizes(), at::kLong, in.device());
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
