#include "ops/foreach/foreach_launch.h"

#include <algorithm>

#include "backend/tensor.h"
#include "launch/dtypes.h"
#include "launch/grid.h"
#include "launch/pipelines.h"
#include "launch/target_scope.h"
#include "runtime/context.h"
#include "wgsl/pipeline_family.h"

namespace torch_webgpu {
namespace {

constexpr PipelineFamily kFamily = PipelineFamily::kMultiTensor;
constexpr uint32_t kWorkgroup = 256;
constexpr uint32_t kVectorBytes = 16;

bool same_strides(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) {
    return false;
  }
  for (int64_t d = 0; d < a.dim(); ++d) {
    if (a.size(d) != 1 && a.stride(d) != b.stride(d)) {
      return false;
    }
  }
  return true;
}

bool is_written(uint32_t written, uint32_t role) { return (written >> role & 1) != 0; }

// The tensors of one dispatch.
class Chunk {
public:
  Chunk(const MultiTensorOp& op, const MultiTensorOperands& operands)
      : op_(op), operands_(operands), context_(context_of(operands.roles[0][0])),
        target_(plan_target(context_)),
        per_tensor_(operands.num_roles + (operands.steps.empty() ? 0 : 1)) {
    const uint32_t limit = std::min(target_.max_storage_buffers, kMaxBindings) - op.num_shared;
    capacity_ = std::min(limit / per_tensor_, kMaxMultiTensors);
    params_.scalars = op.scalars;
  }

  void add(size_t index) {
    if (operands_.roles[0][index].numel() == 0) {
      return;
    }
    if (count_ == capacity_ || clashes(index)) {
      run();
    }
    auto& entry = params_.tensors[count_];
    entry.count = static_cast<uint32_t>(operands_.roles[0][index].numel());
    entry.first_group = groups_;
    for (uint32_t role = 0; role < operands_.num_roles; ++role) {
      const at::Tensor& tensor = operands_.roles[role][index];
      entry.offsets[role] = static_cast<uint32_t>(byte_offset(tensor) / kVectorBytes);
      bindings_[count_ * per_tensor_ + role] = {&buffer_of(tensor)};
    }
    if (!operands_.steps.empty()) {
      const at::Tensor& step = operands_.steps[index];
      entry.step_offset = static_cast<uint32_t>(byte_offset(step) / 4);
      bindings_[count_ * per_tensor_ + operands_.num_roles] = {&buffer_of(step)};
    }
    if (!operands_.scalars.empty()) {
      const size_t which = operands_.scalars.size() == 1 ? 0 : index;
      write_scalar(operands_.scalars[which], op_.dtype, entry.scalar.data());
    }
    const uint32_t lanes = kVectorBytes / info(op_.dtype).bytes;
    const uint64_t vectors = (uint64_t{entry.count} + lanes - 1) / lanes;
    groups_ += static_cast<uint32_t>((vectors + kWorkgroup - 1) / kWorkgroup);
    ++count_;
  }

  void run() {
    if (count_ == 0) {
      return;
    }
    uint32_t num_bindings = count_ * per_tensor_;
    params_.num_tensors = count_;
    for (uint32_t i = 0; i < op_.num_shared; ++i) {
      const at::Tensor& number = operands_.shared[i];
      check_operand_dtype(op_.name, op_.shared[i].name, number.scalar_type(), op_.shared[i].dtype);
      // In elements for 2-byte types, else in words.
      const uint64_t unit = std::min<uint64_t>(number.itemsize(), 4);
      params_.shared_offsets[i] = static_cast<uint32_t>(byte_offset(number) / unit);
      bindings_[num_bindings++] = {&buffer_of(number)};
    }
    const PipelineKey key{kFamily, op_.id,
                          static_cast<uint64_t>(op_.dtype) | uint64_t{count_} << 8 |
                              uint64_t{operands_.num_roles} << 16};
    const Pipeline& pipeline = pipeline_for(context_, target_, key, [&] { return source(); });
    const uint32_t bytes = static_cast<uint32_t>(offsetof(MultiTensorParams, tensors) +
                                                 count_ * sizeof(MultiTensorParams::Entry));
    context_.stream.dispatch(pipeline, bindings_.data(), num_bindings, &params_, bytes,
                             grid_1d(uint64_t{groups_} * kWorkgroup, kWorkgroup, target_));
    count_ = 0;
    groups_ = 0;
  }

private:
  // A buffer that is written may be bound once only.
  bool clashes(size_t index) const {
    for (uint32_t role = 0; role < operands_.num_roles; ++role) {
      const Buffer* buffer = &buffer_of(operands_.roles[role][index]);
      for (uint32_t i = 0; i < count_ * per_tensor_; ++i) {
        const uint32_t other = i % per_tensor_;
        const bool other_written = other < operands_.num_roles && is_written(op_.written, other);
        if (bindings_[i].buffer == buffer && (other_written || is_written(op_.written, role))) {
          return true;
        }
      }
    }
    return false;
  }

  PipelineSpec source() const {
    MultiTensorVariant variant;
    variant.name = op_.name;
    variant.dtype = op_.dtype;
    variant.roles = operands_.num_roles;
    variant.read = op_.read;
    variant.written = op_.written;
    variant.tensors = count_;
    variant.steps = !operands_.steps.empty();
    variant.shared = op_.shared;
    variant.num_shared = op_.num_shared;
    variant.body = op_.body(op_);
    return multi_tensor_source(variant);
  }

  const MultiTensorOp& op_;
  const MultiTensorOperands& operands_;
  Context& context_;
  const ShaderTarget& target_;
  const uint32_t per_tensor_;
  uint32_t capacity_ = 0;
  uint32_t count_ = 0;
  uint32_t groups_ = 0;
  std::array<Binding, kMaxBindings> bindings_{};
  MultiTensorParams params_{};
};

} // namespace

std::optional<DType> multi_tensor_dtype(const MultiTensorOperands& operands, uint32_t written) {
  const at::Tensor& first = operands.roles[0][0];
  const auto dtype = native_dtype(first.scalar_type());
  if (!dtype || *dtype == DType::kBool || !is_webgpu(first)) {
    return std::nullopt;
  }
  const uint64_t limit = plan_target(first).max_storage_binding_size;
  for (size_t i = 0; i < operands.roles[0].size(); ++i) {
    std::array<const Buffer*, kMaxMultiRoles + 1> buffers{};
    for (uint32_t role = 0; role < operands.num_roles; ++role) {
      const at::Tensor& tensor = operands.roles[role][i];
      if (!is_webgpu(tensor) || tensor.scalar_type() != first.scalar_type() ||
          tensor.layout() != at::kStrided || !tensor.is_non_overlapping_and_dense() ||
          tensor.is_conj() || tensor.is_neg() || !same_strides(tensor, operands.roles[0][i])) {
        return std::nullopt;
      }
      if (tensor.numel() == 0) {
        continue;
      }
      buffers[role] = &buffer_of(tensor);
      if (byte_offset(tensor) % kVectorBytes != 0 || buffers[role]->size > limit) {
        return std::nullopt;
      }
      for (uint32_t other = 0; other < role; ++other) {
        if (buffers[other] == buffers[role] &&
            (is_written(written, role) || is_written(written, other))) {
          return std::nullopt;
        }
      }
    }
  }
  return dtype;
}

void multi_tensor(const MultiTensorOp& op, const MultiTensorOperands& operands) {
  Chunk chunk(op, operands);
  for (size_t i = 0; i < operands.roles[0].size(); ++i) {
    chunk.add(i);
  }
  chunk.run();
}

void multi_tensor_staged(const MultiTensorOp& op, const MultiTensorOperands& operands) {
  if (multi_tensor_dtype(operands, op.written)) {
    return multi_tensor(op, operands);
  }
  const at::ScalarType dtype = operands.roles[0][0].scalar_type();
  std::array<std::vector<at::Tensor>, kMaxMultiRoles> copies;
  MultiTensorOperands staged = operands;
  for (uint32_t role = 0; role < operands.num_roles; ++role) {
    for (const at::Tensor& tensor : operands.roles[role]) {
      copies[role].push_back(tensor.to(dtype).clone(at::MemoryFormat::Contiguous));
    }
    staged.roles[role] = copies[role];
  }
  multi_tensor(op, staged);
  for (uint32_t role = 0; role < operands.num_roles; ++role) {
    for (size_t i = 0; (op.written >> role & 1) != 0 && i < copies[role].size(); ++i) {
      operands.roles[role][i].copy_(copies[role][i]);
    }
  }
}

} // namespace torch_webgpu
