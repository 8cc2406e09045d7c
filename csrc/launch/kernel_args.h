// The tensors of a hand-written kernel: which binding each lies in, and the pipeline key that
// follows.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <string>
#include <string_view>

#include "wgsl/kernel_source.h"
#include "launch/binding_list.h"
#include "runtime/context.h"

namespace torch_webgpu {

class KernelArgs {
public:
  static constexpr uint32_t kMax = 9;

  explicit KernelArgs(const char* op) : op_(op), bindings_(op) {}

  /// Adds a tensor of a native dtype as operand `name`, which must outlive this object. Tensors in
  /// one buffer share a binding. Returns where the tensor starts in its binding, in elements.
  uint32_t add(std::string_view name, const at::Tensor& tensor, bool writable = false,
               bool owns_words = false);

  uint32_t slot(uint32_t index) const { return operands_[index].slot; }

  /// Dispatches kernel `file`. `family` and `variant` name the pipeline together with the operands;
  /// set_hooks(KernelSource&) is called when it is built.
  template <class Params, class SetHooks>
  void dispatch(PipelineFamily family, uint64_t variant, std::string_view file,
                const Params& params, Grid grid, SetHooks&& set_hooks) {
    const Pipeline& pipeline =
        context().pipelines.get(bindings_.key(key_.in({family, variant})), [&] {
          KernelSource source;
          source.file = file;
          source.operands.assign(operands_.begin(), operands_.begin() + count_);
          source.windows = bindings_.windows();
          set_hooks(source);
          return build_kernel(op_, source);
        });
    bindings_.dispatch(pipeline, params, grid);
  }

private:
  static_assert(kMax <= OperandKey::kMaxOperands);

  const char* op_;
  std::array<Operand, kMax> operands_{};
  BindingList bindings_;
  OperandKey key_;
  uint32_t count_ = 0;
};

/// A kernel in which `lanes` invocations of a workgroup of 256 work on a row together.
struct RowLanes {
  uint32_t lanes_log2 = 0;
  uint32_t lanes_first = 0; // neighbouring invocations share a row (else take neighbouring rows)

  /// For rows of `length` elements, interleaved with `inner` - 1 others.
  RowLanes(uint32_t length, uint32_t inner, uint32_t elements_per_lane);
  uint32_t lanes() const { return 1u << lanes_log2; }
  uint64_t workgroups(uint64_t rows) const {
    return ((rows << lanes_log2) + kWorkgroup - 1) / kWorkgroup;
  }
  static constexpr uint32_t kWorkgroup = 256;
};

} // namespace torch_webgpu
