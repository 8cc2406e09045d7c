#include "ops/reduce/reduce_launch.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <bit>

#include "backend/empty.h"
#include "backend/tensor.h"
#include "launch/binding_list.h"
#include "launch/dtypes.h"
#include "launch/grid.h"
#include "launch/pipelines.h"
#include "launch/target_scope.h"
#include "ops/reduce/reduce.h"
#include "runtime/context.h"

namespace torch_webgpu {
namespace {

using at::TensorIteratorBase;

// Below this many elements per invocation, sharing a result among more of them costs more than it
// gains.
constexpr uint32_t kElementsPerLane = 4;
constexpr uint32_t kElementsPerLaneAndSplit = 32;
// Neighbouring results that are read together, where results and not elements are contiguous.
constexpr uint32_t kNeighbours = 32;

// uint64 counts as int64: hash_tensor computes the same bits as int64.
at::ScalarType result_type(at::ScalarType type) { return type == at::kUInt64 ? at::kLong : type; }

class Reduction {
public:
  Reduction(TensorIteratorBase& iter, ReduceOp op)
      : iter_(iter), context_(context_of(iter.tensor_base(0))), target_(plan_target(context_)) {
    variant_.op = op;
    variant_.num_outputs = static_cast<uint32_t>(iter.noutputs());
    variant_.num_inputs = static_cast<uint32_t>(iter.ninputs());
    for (int k = 0; k < iter.ninputs(); ++k) {
      variant_.inputs[k] = operand_dtype(row(op).name, "input", iter.dtype(iter.noutputs() + k));
    }
    for (int k = 0; k < iter.noutputs(); ++k) {
      variant_.outputs[k] = operand_dtype(row(op).name, "result", result_type(iter.dtype(k)));
    }
  }

  /// False if operands share a buffer that is larger than a storage binding, or one of them is
  /// larger itself; then kept dimensions must be split, if there are any.
  bool bind() {
    read_shape();
    bind_operands();
    if (share_large_buffer_) {
      return false;
    }
    if (!too_large_ || is_run()) {
      return true;
    }
    windowed_ = !splits_well() && inputs_fit_windows();
    return windowed_;
  }
  bool shares_large_buffer() const { return share_large_buffer_; }
  bool has_kept_dimensions() const { return params_.outer_rank > 0; }
  /// Whether the first input's elements lie together, so that a copy would gain nothing.
  bool is_dense() const { return params_.inner_rank == 1 && params_.inner[0][1] <= 1; }

  void run(c10::ArrayRef<c10::Scalar> scalars) {
    for (size_t s = 0; s < scalars.size(); ++s) {
      write_scalar(scalars[s], variant_.inputs[0], &params_.scalars[2 * s]);
    }
    choose_form();
    choose_split();
    if (params_.splits == 1 && !too_large_) {
      dispatch(variant_, bindings_.data(), num_slots_);
    } else {
      run_in_two_stages();
    }
  }

private:
  int input() const { return iter_.noutputs(); }

  // Whether there is one result, of elements in one row. Then parts of the row can be bound in
  // turn.
  bool is_run() const {
    return params_.outer_rank == 0 && params_.inner_rank == 1 && iter_.ninputs() == 1 &&
           elements_per_binding() > 0;
  }

  uint64_t partial_bytes() const { // of one split
    return static_cast<uint64_t>(params_.results) *
           row(variant_.op).at(info(variant_.inputs[0]).kind).accumulator_bytes;
  }

  // The largest size of a buffer of partial results. It must fit a binding, and the pool rounds
  // sizes up by at most an eighth.
  uint64_t most_partial_bytes() const { return target_.max_storage_binding_size / 9 * 8; }

  // Whether half of the results can be computed from half of the input's memory.
  bool splits_well() const {
    const auto strides = iter_.strides(input());
    const auto longest = std::max_element(strides.begin(), strides.end()) - strides.begin();
    return large_output_ || iter_.strides(0)[longest] != 0;
  }

  // Whether there are bindings enough for all windows of the inputs, and for partial results.
  bool inputs_fit_windows() const {
    const uint64_t window = BindingList::window_bytes(target_);
    uint64_t count = 1;
    for (int k = 0; k < iter_.ninputs(); ++k) {
      const Buffer& buffer = buffer_of(iter_.tensor_base(input() + k));
      count += (std::min(end_of(input() + k, buffer), buffer.size) + window) / window + 1;
    }
    return count < target_.max_storage_buffers && partial_bytes() <= most_partial_bytes();
  }

  void read_shape() {
    uint64_t results = 1;
    uint64_t reduced = 1;
    for (int d = 0; d < iter_.ndim(); ++d) {
      const int64_t size = iter_.shape()[d];
      if (size == 1) {
        continue;
      }
      const bool is_reduced = iter_.strides(0)[d] == 0;
      uint32_t& rank = is_reduced ? params_.inner_rank : params_.outer_rank;
      TORCH_CHECK_NOT_IMPLEMENTED(rank < kReduceMaxDims, row(variant_.op).name, ": more than ",
                                  kReduceMaxDims, " separate dimensions");
      auto& dim = (is_reduced ? params_.inner : params_.outer)[rank++];
      (is_reduced ? reduced : results) *= static_cast<uint64_t>(size);
      dim[0] = static_cast<uint32_t>(size);
      dim[1] = element_stride(input(), d);
      for (int k = 0; !is_reduced && k < iter_.noutputs(); ++k) {
        dim[2 + k] = element_stride(k, d);
      }
      auto& more = (is_reduced ? params_.inner_more : params_.outer_more)[rank - 1];
      for (int k = 1; k < iter_.ninputs(); ++k) {
        more[k - 1] = element_stride(input() + k, d);
      }
    }
    TORCH_CHECK_NOT_IMPLEMENTED(results < uint64_t{1} << 31 && reduced < uint64_t{1} << 31,
                                row(variant_.op).name, ": more than 2^31 elements");
    if (params_.inner_rank == 0) { // every reduced dimension has size 1
      params_.inner[params_.inner_rank++] = {1, 0, 0, 0};
    }
    params_.results = static_cast<uint32_t>(results);
    params_.reduced = static_cast<uint32_t>(reduced);
    params_.count = params_.reduced;
  }

  uint32_t element_stride(int operand, int d) const {
    return static_cast<uint32_t>(iter_.strides(operand)[d] /
                                 static_cast<int64_t>(iter_.element_size(operand)));
  }

  // Bytes from the buffer's start to behind the operand's last element.
  uint64_t end_of(int operand, const Buffer& buffer) const {
    uint64_t end = reinterpret_cast<uintptr_t>(iter_.data_ptr(operand)) - buffer.address +
                   iter_.element_size(operand);
    for (int d = 0; d < iter_.ndim(); ++d) {
      end += static_cast<uint64_t>(iter_.strides(operand)[d]) * (iter_.shape()[d] - 1);
    }
    return end;
  }

  void bind_operands() {
    std::array<uint32_t*, 2 + kReduceMaxInputs> at = {&params_.y_at, &params_.z_at};
    at[input()] = &params_.x_at;
    for (int k = 1; k < iter_.ninputs(); ++k) {
      at[input() + k] = &params_.more_at[k - 1];
    }
    for (int k = 0; k < iter_.ntensors(); ++k) {
      const Buffer& buffer = buffer_of(iter_.tensor_base(k));
      check_context(row(variant_.op).name, buffer, context_);
      uint64_t begin = reinterpret_cast<uintptr_t>(iter_.data_ptr(k)) - buffer.address;
      uint32_t slot = 0;
      while (slot < num_slots_ && bindings_[slot].buffer != &buffer) {
        ++slot;
      }
      if (slot == num_slots_) {
        Binding& binding = bindings_[num_slots_++];
        binding.buffer = &buffer;
        if (buffer.size > target_.max_storage_binding_size) { // a window with all that is touched
          binding.offset =
              begin / target_.storage_offset_alignment * target_.storage_offset_alignment;
          binding.size = std::min((end_of(k, buffer) + 15) / 16 * 16, buffer.size) - binding.offset;
          const bool is_large = binding.size > target_.max_storage_binding_size;
          too_large_ |= is_large;
          large_output_ |= is_large && k < input();
        }
      } else {
        share_large_buffer_ |= bindings_[slot].size != 0;
      }
      variant_.slots[k] = static_cast<uint8_t>(slot);
      *at[k] = static_cast<uint32_t>((begin - bindings_[slot].offset) / iter_.element_size(k));
    }
  }

  void choose_form() {
    const uint32_t inner_stride = params_.inner[0][1];
    const uint32_t outer_stride =
        params_.outer_rank > 0 && params_.results > 1 ? params_.outer[0][1] : UINT32_MAX;
    params_.lanes_first = inner_stride < outer_stride ? 1 : 0;
    const uint32_t width = 16 / info(variant_.inputs[0]).bytes;
    const bool own_slot =
        variant_.slots[input()] == num_slots_ - 1 &&
        num_slots_ >
            *std::max_element(variant_.slots.begin(), variant_.slots.begin() + input()) + 1u;
    variant_.vectors = !windowed_ && own_slot && variant_.num_inputs == 1 &&
                       params_.inner_rank == 1 && inner_stride == 1 && params_.reduced >= 8 * width;
    variant_.inner_rank = std::min(params_.inner_rank, 3u);
  }

  // How many invocations share a result, and how many workgroups.
  void choose_split() {
    const uint32_t reduced = std::max(params_.reduced, 1u);
    const uint32_t per_lane =
        variant_.vectors ? 2 * 16 / info(variant_.inputs[0]).bytes : kElementsPerLane;
    const uint32_t full = target_.workgroups_to_fill;
    uint32_t lanes = std::bit_ceil((reduced + per_lane - 1) / per_lane);
    if (params_.lanes_first == 0) {
      // Reading neighbouring results together comes first, unless there are too few of them.
      const uint32_t neighbours = std::min(std::bit_ceil(params_.results), kNeighbours);
      const bool many = params_.results / kReduceWorkgroup >= full;
      lanes = std::min(lanes, many ? 1 : kReduceWorkgroup / neighbours);
    }
    lanes = std::min(lanes, kReduceWorkgroup);
    params_.lanes_log2 = static_cast<uint32_t>(std::countr_zero(lanes));
    const uint32_t blocks = blocks_of(params_);
    const uint32_t useful = reduced / (lanes * std::max(per_lane, kElementsPerLaneAndSplit));
    const uint64_t fit = most_partial_bytes() / partial_bytes();
    const uint32_t most = static_cast<uint32_t>(std::clamp<uint64_t>(fit, 1, full));
    params_.splits = std::clamp(std::min(full / blocks, useful), 1u, most);
    params_.chunk = (reduced + params_.splits - 1) / params_.splits;
    if (too_large_ && !windowed_) {
      params_.chunk = std::min(params_.chunk, elements_per_binding());
    }
    params_.splits = (reduced + params_.chunk - 1) / params_.chunk;
  }

  // Elements of a run that certainly lie in one binding, wherever they start.
  uint32_t elements_per_binding() const {
    const uint64_t bytes = target_.max_storage_binding_size - 2 * target_.storage_offset_alignment;
    const uint64_t stride = std::max(params_.inner[0][1], 1u) * iter_.element_size(input());
    return static_cast<uint32_t>(bytes / stride);
  }

  static uint32_t blocks_of(const ReduceParams& params) {
    const uint32_t per_workgroup = kReduceWorkgroup >> params.lanes_log2;
    return (params.results + per_workgroup - 1) / per_workgroup;
  }

  void run_in_two_stages() {
    const auto bytes = static_cast<int64_t>(partial_bytes() * params_.splits);
    const at::Tensor partials = empty_webgpu({bytes}, at::kByte);
    const Binding partial_binding = {&buffer_of(partials), 0, 0};

    ReduceVariant first = variant_;
    first.stage = ReduceStage::kPartial;
    first.slots = {};
    first.outputs = {};
    first.num_outputs = 0;
    if (windowed_) {
      run_windowed(first, partials);
      return finish(partial_binding);
    }
    std::array<Binding, 1 + kReduceMaxInputs> first_bindings;
    uint32_t num_first = 0;
    for (int k = 0; k < iter_.ninputs(); ++k) {
      const Binding& binding = bindings_[variant_.slots[input() + k]];
      uint32_t slot = 0;
      while (slot < num_first && first_bindings[slot].buffer != binding.buffer) {
        ++slot;
      }
      first_bindings[slot] = binding;
      num_first = std::max(num_first, slot + 1);
      first.slots[k] = static_cast<uint8_t>(slot);
    }
    first_bindings[num_first++] = partial_binding;
    if (too_large_) {
      dispatch_pieces(first, first_bindings.data(), num_first);
    } else {
      dispatch(first, first_bindings.data(), num_first);
    }
    finish(partial_binding);
  }

  // The first stage with every input in as many bindings as it takes.
  void run_windowed(ReduceVariant& variant, const at::Tensor& partials) {
    BindingList bindings(row(variant.op).name.data());
    for (int k = 0; k < iter_.ninputs(); ++k) {
      const Buffer& buffer = buffer_of(iter_.tensor_base(input() + k));
      const uint64_t begin =
          reinterpret_cast<uintptr_t>(iter_.data_ptr(input() + k)) - buffer.address;
      const uint64_t bytes = iter_.element_size(input() + k);
      const uint32_t slot = bindings.add(buffer, bytes, begin, end_of(input() + k, buffer));
      variant.slots[k] = static_cast<uint8_t>(slot);
      uint32_t& at = k == 0 ? params_.x_at : params_.more_at[k - 1];
      at = static_cast<uint32_t>((begin - bindings.base(slot)) / bytes);
    }
    variant.windows = bindings.windows();
    bindings.require_one_binding(bindings.add(partials));
    dispatch(variant, bindings.data(), bindings.size());
  }

  // The second stage. Partial results of a result are contiguous.
  void finish(const Binding& partial_binding) {
    ReduceVariant last = variant_;
    last.stage = ReduceStage::kFinal;
    last.vectors = false;
    last.inner_rank = 1;
    last.num_inputs = 1;
    last.slots = {variant_.slots[0], input() > 1 ? variant_.slots[1] : uint8_t{0}};
    const uint32_t splits = params_.splits;
    uint32_t stride = splits;
    for (uint32_t d = 0; d < params_.outer_rank; ++d) {
      params_.outer[d][1] = stride;
      stride *= params_.outer[d][0];
    }
    params_.inner_rank = 1;
    params_.inner[0] = {splits, 1, 0, 0};
    params_.x_at = 0;
    params_.reduced = splits;
    params_.chunk = splits;
    params_.splits = 1;
    params_.first_split = 0;
    params_.lanes_first = 1;
    params_.lanes_log2 =
        static_cast<uint32_t>(std::countr_zero(std::min(std::bit_ceil(splits), kReduceWorkgroup)));
    uint32_t num_outputs_slots = 0;
    for (int k = 0; k < input(); ++k) {
      num_outputs_slots = std::max(num_outputs_slots, variant_.slots[k] + 1u);
    }
    auto last_bindings = bindings_;
    last_bindings[num_outputs_slots] = partial_binding;
    dispatch(last, last_bindings.data(), num_outputs_slots + 1);
  }

  // The input, alone in binding 0, in windows of as many splits as fit.
  void dispatch_pieces(const ReduceVariant& variant, Binding* bindings, uint32_t count) {
    const uint64_t align = target_.storage_offset_alignment;
    const uint64_t element = iter_.element_size(input());
    const uint64_t stride = params_.inner[0][1] * element;
    const Buffer& buffer = *bindings[0].buffer;
    const uint64_t begin = reinterpret_cast<uintptr_t>(iter_.data_ptr(input())) - buffer.address;
    const uint32_t at_once = elements_per_binding() / params_.chunk;
    for (uint32_t s = 0; s < params_.splits; s += at_once) {
      const uint64_t last =
          std::min<uint64_t>(uint64_t{s + at_once} * params_.chunk, params_.reduced) - 1;
      const uint64_t offset = (begin + uint64_t{s} * params_.chunk * stride) / align * align;
      const uint64_t end = std::min((begin + last * stride + element + 15) / 16 * 16, buffer.size);
      bindings[0] = {&buffer, offset, end - offset};
      // Kernels count elements from the start of the tensor, which may lie before the window. The
      // difference then wraps around, and additions modulo 2^32 give the right place.
      params_.x_at =
          static_cast<uint32_t>(begin / element) - static_cast<uint32_t>(offset / element);
      params_.first_split = s;
      dispatch(variant, bindings, count, std::min(at_once, params_.splits - s));
    }
  }

  void dispatch(const ReduceVariant& variant, const Binding* bindings, uint32_t count) {
    dispatch(variant, bindings, count, params_.splits);
  }

  void dispatch(const ReduceVariant& variant, const Binding* bindings, uint32_t count,
                uint32_t splits) {
    params_.splits_here = splits;
    const Pipeline& pipeline =
        pipeline_for(context_, target_, variant.key(), [&] { return reduce_source(variant); });
    const uint64_t workgroups = static_cast<uint64_t>(blocks_of(params_)) * splits;
    context_.stream.dispatch(pipeline, bindings, count, &params_, sizeof(params_),
                             grid_1d(workgroups, 1, target_));
  }

  TensorIteratorBase& iter_;
  Context& context_;
  const ShaderTarget& target_;
  ReduceVariant variant_;
  ReduceParams params_;
  std::array<Binding, 2 + kReduceMaxInputs> bindings_{};
  uint32_t num_slots_ = 0;
  bool too_large_ = false;
  bool large_output_ = false;
  bool share_large_buffer_ = false;
  bool windowed_ = false; // inputs take several bindings each
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

ReduceOutcome launch_reduction(TensorIteratorBase& iter, ReduceOp op,
                               c10::ArrayRef<c10::Scalar> scalars) {
  Reduction reduction(iter, op);
  if (reduction.bind()) {
    reduction.run(scalars);
    return ReduceOutcome::kDone;
  }
  if (!reduction.shares_large_buffer() && reduction.has_kept_dimensions()) {
    return ReduceOutcome::kSplit;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      reduction.shares_large_buffer() || !reduction.is_dense(), row(op).name,
      "(): the tensors do not fit into the storage bindings of this adapter");
  return ReduceOutcome::kCopy;
}

} // namespace torch_webgpu
