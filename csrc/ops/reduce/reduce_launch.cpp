#include "ops/reduce/reduce_launch.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <vector>

#include "backend/empty.h"
#include "backend/tensor.h"
#include "launch/dtypes.h"
#include "launch/operand_view.h"
#include "launch/target_scope.h"
#include "ops/reduce/reduce.h"

namespace torch_webgpu {
namespace {

using at::TensorIteratorBase;
namespace kernel = kernels::reduce;

// A result is not shared by so many invocations that one has fewer elements than this: combining
// their partial results would take longer than it saves.
constexpr uint32_t kElementsPerLane = 4;
constexpr uint32_t kElementsPerLaneAndSplit = 32;
// Neighbouring results that a workgroup computes together if elements of neighbouring results, and
// not those of one result, are contiguous.
constexpr uint32_t kNeighbours = 32;
constexpr uint32_t kMaxInputs = 4;
constexpr uint32_t kMaxDims = std::tuple_size_v<decltype(kernel::Params::dims)> / 4;

// uint64 is reduced as int64: the bits that hash_tensor computes are the same.
at::ScalarType result_type(at::ScalarType type) { return type == at::kUInt64 ? at::kLong : type; }

bool is_reduced(const TensorIteratorBase& iter, int dim) { return iter.strides(0)[dim] == 0; }

// The dimensions of an iterator, as the kernel walks them: sizes and strides.
struct Walk {
  using Dims = std::array<std::array<uint32_t, 4>, kMaxDims>;

  Walk(const TensorIteratorBase& iter, std::string_view name) {
    const int input = iter.noutputs();
    for (int d = 0; d < iter.ndim(); ++d) {
      const int64_t size = iter.shape()[d];
      if (size == 1) {
        continue;
      }
      const bool reduces = is_reduced(iter, d);
      uint32_t& rank = reduces ? inner_rank : outer_rank;
      TORCH_CHECK_NOT_IMPLEMENTED(rank < kMaxDims, name, ": more than ", kMaxDims,
                                  " separate dimensions");
      auto stride = [&](int k) {
        return static_cast<uint32_t>(iter.strides(k)[d] /
                                     static_cast<int64_t>(iter.element_size(k)));
      };
      auto& dim = (reduces ? inner : outer)[rank];
      auto& more = (reduces ? inner_more : outer_more)[rank];
      ++rank;
      (reduces ? reduced : results) *= static_cast<uint64_t>(size);
      dim = {static_cast<uint32_t>(size), stride(input), 0, 0};
      for (int k = 0; !reduces && k < input; ++k) {
        dim[2 + k] = stride(k);
      }
      more = {};
      for (int k = 1; k < iter.ninputs(); ++k) {
        more[k - 1] = stride(input + k);
      }
    }
    if (inner_rank == 0) { // every reduced dimension has size 1
      inner[inner_rank++] = {1, 0, 0, 0};
    }
  }

  // Puts the dimensions into the parameters; returns how many vectors these are.
  uint32_t write(kernel::Params& params, bool has_more) const {
    params.inner_rank = inner_rank;
    params.rank = inner_rank + outer_rank;
    auto* at = params.dims.begin();
    at = std::copy_n(inner.begin(), inner_rank, at);
    at = std::copy_n(outer.begin(), outer_rank, at);
    if (has_more) {
      at = std::copy_n(inner_more.begin(), inner_rank, at);
      at = std::copy_n(outer_more.begin(), outer_rank, at);
    }
    return static_cast<uint32_t>(at - params.dims.begin());
  }

  uint64_t results = 1;
  uint64_t reduced = 1;
  uint32_t inner_rank = 0;
  uint32_t outer_rank = 0;
  Dims inner;
  Dims outer;
  Dims inner_more;
  Dims outer_more;
};

// How the elements of a dispatch are divided among invocations.
struct Split {
  uint32_t lanes_log2 = 0;
  uint32_t lanes_first = 0;
  uint32_t splits = 1;
  uint32_t chunk = 0;
};

// A part of the elements of every result, which one dispatch reads.
struct Piece {
  const TensorIteratorBase* iter;
  uint64_t first; // the index of its first element among a result's elements
};

class Reduction {
public:
  Reduction(const TensorIteratorBase& iter, ReduceOp op, c10::ArrayRef<c10::Scalar> scalars)
      : iter_(iter), op_(op), row_(row(op)), target_(plan_target(iter.tensor_base(0))),
        walk_(iter, row_.name) {
    for (int k = 0; k < iter.ninputs(); ++k) {
      inputs_[k] = operand_dtype(row_.name, "input", iter.dtype(input() + k));
    }
    for (int k = 0; k < input(); ++k) {
      outputs_[k] = operand_dtype(row_.name, "result", result_type(iter.dtype(k)));
    }
    for (size_t s = 0; s < scalars.size(); ++s) {
      write_scalar(scalars[s], inputs_[0], &params_.scalars[2 * s]);
    }
    kind_ = info(inputs_[0]).kind;
  }

  ReduceOutcome run() {
    if (fits(iter_)) {
      run_whole();
      return ReduceOutcome::kDone;
    }
    if (shares_large_buffer()) {
      return ReduceOutcome::kCopy;
    }
    if (walk_.outer_rank > 0 && splits_by_results()) {
      return ReduceOutcome::kSplit;
    }
    cut(iter_, 0);
    if (walk_.outer_rank > 0 && pieces_.size() > most_splits()) {
      return ReduceOutcome::kSplit;
    }
    run_in_pieces();
    return ReduceOutcome::kDone;
  }

private:
  int input() const { return iter_.noutputs(); }

  // Whether kernels can count the elements, and each operand lies in one binding.
  bool fits(const TensorIteratorBase& iter) const {
    if (static_cast<uint64_t>(iter.numel()) >= target_.max_elements) {
      return false;
    }
    for (int k = 0; k < iter.ntensors(); ++k) {
      if (!fits(iter, k)) {
        return false;
      }
    }
    return true;
  }
  bool fits(const TensorIteratorBase& iter, int k) const {
    const Buffer& buffer = buffer_of(iter.tensor_base(k));
    if (buffer.size <= target_.max_storage_binding_size) {
      return true;
    }
    // Operands that share the buffer would have to share a binding.
    for (int other = 0; other < iter.ntensors(); ++other) {
      if (other != k && &buffer_of(iter.tensor_base(other)) == &buffer) {
        return false;
      }
    }
    const Extent extent = extent_of(iter, k);
    return extent.bytes() <= BindingList::safe_reach(target_);
  }

  bool shares_large_buffer() const {
    for (int k = 0; k < iter_.ntensors(); ++k) {
      const Buffer& buffer = buffer_of(iter_.tensor_base(k));
      for (int other = 0; other < k; ++other) {
        if (buffer.size > target_.max_storage_binding_size &&
            &buffer_of(iter_.tensor_base(other)) == &buffer) {
          return true;
        }
      }
    }
    return false;
  }

  // Whether to cut the results rather than the reduced elements. Where the longest stride is that
  // of a result's dimension, this halves the memory that a part touches.
  bool splits_by_results() const {
    if (walk_.results >= target_.max_elements) {
      return true;
    }
    for (int k = 0; k < input(); ++k) {
      if (!fits(iter_, k)) {
        return true;
      }
    }
    const auto strides = iter_.strides(input());
    const auto longest = std::max_element(strides.begin(), strides.end()) - strides.begin();
    return !is_reduced(iter_, static_cast<int>(longest));
  }

  // Cuts reduced dimensions, the one with the longest stride first, until every piece fits.
  void cut(const TensorIteratorBase& iter, uint64_t first) {
    int dim = -1;
    uint64_t faster = 1; // elements between two neighbours along `dim`, in the order of reduction
    uint64_t passed = 1;
    for (int d = 0; d < iter.ndim(); ++d) {
      if (is_reduced(iter_, d) && iter.shape()[d] > 1 &&
          (dim < 0 || iter.strides(input())[d] >= iter.strides(input())[dim])) {
        dim = d;
        faster = passed;
      }
      passed *= is_reduced(iter_, d) ? static_cast<uint64_t>(iter.shape()[d]) : 1;
    }
    if (fits(iter) || dim < 0) {
      pieces_.push_back({&iter, first});
      return;
    }
    auto rest = std::make_unique<at::TensorIterator>(iter);
    auto begin = rest->split(dim);
    const auto taken = static_cast<uint64_t>(begin->shape()[dim]);
    parts_.push_back(std::move(begin));
    cut(*parts_.back(), first);
    parts_.push_back(std::move(rest));
    cut(*parts_.back(), first + taken * faster);
  }

  uint64_t partial_bytes() const { // of one split
    return walk_.results * row_.at(kind_).accumulator_bytes;
  }
  // The partial results must fit a binding, and the pool rounds sizes up by at most an eighth.
  uint64_t most_splits() const {
    return target_.max_storage_binding_size / 9 * 8 / std::max<uint64_t>(partial_bytes(), 1);
  }

  bool reads_vectors(const TensorIteratorBase& iter, const Walk& walk) const {
    const Buffer& buffer = buffer_of(iter.tensor_base(input()));
    for (int k = 0; k < iter.ntensors(); ++k) {
      if (k != input() && &buffer_of(iter.tensor_base(k)) == &buffer) {
        return false;
      }
    }
    return iter.ninputs() == 1 && walk.inner_rank == 1 && walk.inner[0][1] == 1 &&
           walk.reduced >= 8 * uint64_t{16 / info(inputs_[0]).bytes} && fits(iter, input());
  }

  // How many invocations share a result, and how many workgroups.
  Split choose_split(const Walk& walk, bool vectors, uint64_t most_splits) const {
    Split split;
    const uint32_t inner_stride = walk.inner[0][1];
    const uint32_t outer_stride =
        walk.outer_rank > 0 && walk.results > 1 ? walk.outer[0][1] : UINT32_MAX;
    split.lanes_first = inner_stride < outer_stride ? 1 : 0;
    const auto reduced = std::max(static_cast<uint32_t>(walk.reduced), 1u);
    const auto results = static_cast<uint32_t>(walk.results);
    const uint32_t per_lane = vectors ? 2 * 16 / info(inputs_[0]).bytes : kElementsPerLane;
    const uint32_t full = target_.workgroups_to_fill;
    uint32_t lanes = std::bit_ceil((reduced + per_lane - 1) / per_lane);
    if (split.lanes_first == 0) {
      // Neighbouring results are computed together, unless there are too few of them.
      const uint32_t neighbours = std::min(std::bit_ceil(results), kNeighbours);
      const bool many = results / kernel::kWorkgroup >= full;
      lanes = std::min(lanes, many ? 1 : kernel::kWorkgroup / neighbours);
    }
    lanes = std::min(lanes, kernel::kWorkgroup);
    split.lanes_log2 = static_cast<uint32_t>(std::countr_zero(lanes));
    const uint64_t blocks = blocks_of(split.lanes_log2);
    const uint32_t useful = reduced / (lanes * std::max(per_lane, kElementsPerLaneAndSplit));
    const auto most = static_cast<uint32_t>(std::clamp<uint64_t>(most_splits, 1, full));
    split.splits =
        std::clamp(static_cast<uint32_t>(std::min<uint64_t>(full / blocks, useful)), 1u, most);
    split.chunk = (reduced + split.splits - 1) / split.splits;
    split.splits = (reduced + split.chunk - 1) / split.chunk;
    return split;
  }

  uint64_t blocks_of(uint32_t lanes_log2) const {
    const uint32_t per_workgroup = kernel::kWorkgroup >> lanes_log2;
    return (walk_.results + per_workgroup - 1) / per_workgroup;
  }

  void run_whole() {
    const bool vectors = reads_vectors(iter_, walk_);
    const Split split = choose_split(walk_, vectors, most_splits());
    if (split.splits == 1) {
      dispatch(iter_, walk_, split, vectors, 0, 0, nullptr, 1);
      return;
    }
    const at::Tensor parts = new_parts(split.splits);
    dispatch(iter_, walk_, split, vectors, 0, 0, &parts, split.splits);
    finish(parts, split.splits);
  }

  void run_in_pieces() {
    std::vector<Walk> walks;
    std::vector<Split> splits;
    walks.reserve(pieces_.size());
    uint32_t total = 0;
    for (const Piece& piece : pieces_) {
      walks.emplace_back(*piece.iter, row_.name);
      splits.push_back(choose_split(walks.back(), reads_vectors(*piece.iter, walks.back()),
                                    most_splits() / pieces_.size()));
      total += splits.back().splits;
    }
    const at::Tensor parts = new_parts(total);
    uint32_t first_split = 0;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      dispatch(*pieces_[i].iter, walks[i], splits[i], reads_vectors(*pieces_[i].iter, walks[i]),
               static_cast<uint32_t>(pieces_[i].first), first_split, &parts, total);
      first_split += splits[i].splits;
    }
    finish(parts, total);
  }

  at::Tensor new_parts(uint32_t splits) const {
    return empty_webgpu({static_cast<int64_t>(partial_bytes() * splits)}, at::kByte,
                        iter_.device(0));
  }

  void bind_results(kernel::Launch& launch) const {
    const Extent y = extent_of(iter_, 0);
    launch.y_range(WrittenBuffer(iter_.tensor_base(0)), y.begin, y.end, outputs_[0]);
    if (input() > 1) {
      const Extent z = extent_of(iter_, 1);
      launch.z_range(WrittenBuffer(iter_.tensor_base(1)), z.begin, z.end, outputs_[1]);
    }
  }

  void set_constants(kernel::Launch& launch, uint32_t inner_rank) const {
    launch.row(static_cast<uint32_t>(op_))
        .element(reduce_element(kind_))
        .inner_form(inner_rank == 1   ? kernel::InnerForm::one_inner
                    : inner_rank == 2 ? kernel::InnerForm::two_inner
                                      : kernel::InnerForm::any_inner);
  }

  // From elements to results, or to `total` partial results each if there is a tensor for them.
  void dispatch(const TensorIteratorBase& iter, const Walk& walk, const Split& split, bool vectors,
                uint32_t first, uint32_t first_split, const at::Tensor* parts, uint32_t total) {
    kernel::Launch launch(row_.name.data());
    if (parts == nullptr) {
      bind_results(launch);
    } else {
      launch.new_parts(*parts);
    }
    const auto bind = [&](auto&& operand_range, int k) {
      const Extent extent = extent_of(iter, input() + k);
      operand_range(buffer_of(iter.tensor_base(input() + k)), extent.begin, extent.end, inputs_[k]);
    };
    bind([&](auto&&... range) { launch.x_range(range...); }, 0);
    if (iter.ninputs() > 1) {
      bind([&](auto&&... range) { launch.w_range(range...); }, 1);
      bind([&](auto&&... range) { launch.m_range(range...); }, 2);
      bind([&](auto&&... range) { launch.r_range(range...); }, 3);
    }
    if (vectors) {
      launch.read_vectors_of_x();
    }
    set_constants(launch, walk.inner_rank);
    params_.results = static_cast<uint32_t>(walk_.results);
    params_.reduced = static_cast<uint32_t>(walk.reduced);
    params_.first = first;
    params_.count = static_cast<float>(walk_.reduced);
    params_.splits = total;
    params_.first_split = first_split;
    params_.splits_here = split.splits;
    params_.chunk = split.chunk;
    params_.lanes_log2 = split.lanes_log2;
    params_.lanes_first = split.lanes_first;
    run(launch, walk.write(params_, iter.ninputs() > 1), split.splits, parts == nullptr);
  }

  // From partial results to results.
  void finish(const at::Tensor& parts, uint32_t splits) {
    walk_.inner_rank = 1;
    walk_.inner[0] = {splits, 1, 0, 0};
    for (uint32_t d = 0; d < walk_.outer_rank; ++d) {
      walk_.outer[d][1] = 0; // the kernel knows where the partial results of a result are
    }
    kernel::Launch launch(row_.name.data());
    bind_results(launch);
    launch.parts(parts);
    set_constants(launch, 1);
    params_.results = static_cast<uint32_t>(walk_.results);
    params_.reduced = splits;
    params_.count = static_cast<float>(walk_.reduced);
    params_.splits = 1;
    params_.first_split = 0;
    params_.splits_here = 1;
    params_.chunk = splits;
    params_.lanes_first = 1;
    params_.lanes_log2 = static_cast<uint32_t>(
        std::countr_zero(std::min(std::bit_ceil(splits), kernel::kWorkgroup)));
    run(launch, walk_.write(params_, false), 1, true);
  }

  void run(kernel::Launch& launch, uint32_t dims, uint32_t splits, bool writes_results) {
    launch.run(
        params_, launch.grid_of_groups(blocks_of(params_.lanes_log2) * splits),
        [&] {
          return reduce_regions(
              op_, kind_, {outputs_.data(), static_cast<size_t>(writes_results ? input() : 0)});
        },
        kernel::params_bytes(dims));
  }

  const TensorIteratorBase& iter_;
  ReduceOp op_;
  const ReduceRow& row_;
  const ShaderTarget& target_;
  Walk walk_;
  kernel::Params params_;
  std::array<DType, kMaxInputs> inputs_{};
  std::array<DType, 2> outputs_{};
  Kind kind_ = Kind::kFloat;
  std::vector<std::unique_ptr<at::TensorIterator>> parts_; // the iterators of pieces
  std::vector<Piece> pieces_;
};

} // namespace

bool can_reduce(const TensorIteratorBase& iter, ReduceOp op) {
  for (int k = 0; k < iter.ntensors(); ++k) {
    const at::ScalarType type = iter.dtype(k);
    if (!native_dtype(k < iter.noutputs() ? result_type(type) : type)) {
      return false;
    }
  }
  return row(op).has(info(*native_dtype(iter.dtype(iter.noutputs()))).kind);
}

ReduceOutcome launch_reduction(const TensorIteratorBase& iter, ReduceOp op,
                               c10::ArrayRef<c10::Scalar> scalars) {
  return Reduction(iter, op, scalars).run();
}

} // namespace torch_webgpu
