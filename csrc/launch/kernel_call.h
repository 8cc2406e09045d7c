// One dispatch of a hand-written kernel: collects the operands, shares slots, builds the key.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "wgsl/kernel_source.h"
#include "launch/binding_list.h"
#include "launch/common.h"
#include "runtime/context.h"

namespace torch_webgpu {

class KernelCall {
public:
  using Hooks = std::vector<std::pair<std::string_view, std::string>>;
  static constexpr uint32_t kWorkgroup = 256;

  /// `op` names the op in errors and profiles; `file` is the kernel's. Both must outlive the call.
  KernelCall(const char* op, std::string_view file) : op_(op), file_(file), bindings_(op) {}

  void add_input(std::string_view name, const at::TensorBase& tensor, DType dtype) {
    add({name, dtype}, tensor);
  }
  void add_output(std::string_view name, const at::TensorBase& tensor, DType dtype) {
    add({name, dtype, 0, true}, tensor);
  }
  /// An output that invocations add to with atomics: atomic_add_NAME.
  void add_sum(std::string_view name, const at::TensorBase& tensor, DType dtype) {
    add({name, dtype, 0, true, true}, tensor);
  }

  /// The code for the error word: what the kernel writes there if `message` happened.
  uint32_t check_indices(const std::string& message, ErrorKind kind = ErrorKind::kIndex) {
    checks_indices_ = true;
    return context().stream.error_code(message, kind);
  }

  /// Dispatches `count` invocations in groups of kWorkgroup. The family and the word `lo` of
  /// `variant` tell the kernel's hooks apart, besides file and operands; `hooks()` is called for a
  /// new pipeline only.
  template <typename Params, typename MakeHooks>
  void run(PipelineKey variant, const Params& params, uint64_t count, MakeHooks&& hooks) {
    run_groups(variant, params, context().stream.grid_1d(count, kWorkgroup),
               std::forward<MakeHooks>(hooks));
  }

  template <typename Params, typename MakeHooks>
  void run_groups(PipelineKey variant, const Params& params, Grid grid, MakeHooks&& hooks) {
    const Pipeline& pipeline = context().pipelines.get(bindings_.key(key_.in(variant)), [&] {
      KernelSource source;
      source.file = file_;
      source.operands.assign(operands_.begin(), operands_.begin() + num_operands_);
      source.hooks = hooks();
      source.checks_indices = checks_indices_;
      source.windows = bindings_.windows();
      return build_kernel(op_, source);
    });
    bindings_.dispatch(pipeline, params, grid);
  }

private:
  static constexpr uint32_t kMaxOperands = 9;
  static_assert(kMaxOperands <= OperandKey::kMaxOperands);

  void add(Operand operand, const at::TensorBase& tensor) {
    TORCH_INTERNAL_ASSERT(num_operands_ < kMaxOperands, op_, "(): too many operands");
    check_operand_dtype(op_, operand.name, tensor.scalar_type(), operand.dtype);
    operand.slot = bindings_.add(tensor);
    key_.add(operand.dtype, operand.slot);
    operands_[num_operands_++] = operand;
  }

  const char* op_;
  std::string_view file_;
  std::array<Operand, kMaxOperands> operands_;
  BindingList bindings_;
  uint32_t num_operands_ = 0;
  OperandKey key_;
  bool checks_indices_ = false;
};

} // namespace torch_webgpu
