// The operands of one dispatch by their numbers, the bindings they lie in, and the pipeline key
// that follows from them.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <utility>

#include "launch/binding_list.h"
#include "runtime/context.h"
#include "wgsl/assemble.h"
#include "wgsl/kernel_source.h"

namespace torch_webgpu {

inline constexpr uint32_t kMaxOperands = 15;

/// What every launch shares. Launch, its child for kernels of files, checks what the file states;
/// a generator of whole shaders (csrc/ops/pointwise) derives from this and answers for the dtypes.
class OperandLaunch {
public:
  OperandLaunch(const OperandLaunch&) = delete;
  OperandLaunch& operator=(const OperandLaunch&) = delete;

  const char* op() const { return op_; }

protected:
  /// `op` names the operator in errors and profiles and must outlive the launch.
  explicit OperandLaunch(const char* op) : op_(op), bindings_(op) {}

  /// Operand `k`, once: elements of `dtype`, the first of them at byte `start` of the buffer. If
  /// the buffer is larger than a binding, the kernel touches the bytes extent() only.
  template <typename MakeExtent>
  void put(uint32_t k, DType dtype, const Buffer& buffer, uint64_t start, MakeExtent&& extent) {
    if (C10_LIKELY(buffer.size <= bindings_.target_with(buffer).max_storage_binding_size)) {
      place(k, dtype, bindings_.add(buffer, info(dtype).bytes), start);
    } else {
      put_windowed(k, dtype, {&buffer, start, extent()});
    }
  }
  /// Operand `k` lies `start` bytes behind the start of that slot, for launches that find the
  /// bindings themselves.
  void place(uint32_t k, DType dtype, uint32_t slot, uint64_t start) {
    operands_[k].present = true;
    operands_[k].dtype = dtype;
    operands_[k].slot = static_cast<uint8_t>(slot);
    present_ |= 1u << k;
    at_[k] = static_cast<uint32_t>(start >> std::countr_zero(info(dtype).bytes));
    operand_key_.set(k, dtype, slot);
  }
  /// The kernel names the binding of operand `k` itself instead of using accessors: there must be
  /// only one.
  void require_one_binding(uint32_t k) { one_binding_ |= 1u << k; }
  /// Gives every operand its binding; once, when all are known.
  void place_operands() {
    if (C10_UNLIKELY(windowed_ != 0)) {
      place_windowed();
    }
  }

  bool has(uint32_t k) const { return (present_ >> k & 1) != 0; }
  uint32_t present() const { return present_; }
  DType dtype(uint32_t k) const { return operands_[k].dtype; }
  /// After place_operands().
  uint32_t slot(uint32_t k) const { return operands_[k].slot; }
  /// Where operand `k` starts in its binding, in elements; 0 for an absent one. After
  /// place_operands().
  uint32_t at(uint32_t k) const { return at_[k]; }
  /// Where operand `k` starts in its buffer, in bytes. Before place_operands().
  uint64_t start(uint32_t k) const {
    return is_windowed(k) ? ranges_[k].start : uint64_t{at_[k]} * info(dtype(k)).bytes;
  }

  // Before place_operands(), about operands in buffers that are larger than a binding:

  bool has_windows() const { return windowed_ != 0; }
  /// Whether each of those buffers needs one binding only.
  bool fit_one_binding_each() const;
  /// The same if each of these operands were copied to a buffer of its own.
  bool fit_one_binding_apart() const;
  /// Whether operand `k` is one of those, and not the only one in its buffer.
  bool shares_large_buffer(uint32_t k) const;

  /// As BindingList's.
  const ShaderTarget& target_with(const Buffer& buffer) { return bindings_.target_with(buffer); }
  const ShaderTarget& target() const { return bindings_.target(); }
  Context& owner() const { return bindings_.owner(); }
  SlotWindows windows() const { return bindings_.windows(); }

  /// `variant` tells apart the kernels of a family with equal operands and target.
  PipelineKey key_of(PipelineFamily family, uint64_t variant) const {
    PipelineKey key;
    key.family = family;
    key.lo = variant;
    return bindings_.key(operand_key_.in(key));
  }
  /// Appends the dispatch. make_spec() makes the complete shader, for a new key only.
  template <typename MakeSpec>
  void dispatch(const PipelineKey& key, const void* params, uint32_t bytes, Grid grid,
                MakeSpec&& make_spec) {
    Context& context = owner();
    const Pipeline& pipeline = context.pipelines.get(key, std::forward<MakeSpec>(make_spec));
    context.stream.dispatch(pipeline, bindings_.data(), bindings_.size(), params, bytes, grid);
  }

  // Of each operand, what a kernel's form holds.
  std::array<KernelForm::Operand, kMaxOperands> operands_{};

private:
  static_assert(kMaxOperands <= OperandKey::kMaxOperands);

  // An operand in a buffer larger than a binding.
  struct Range {
    const Buffer* buffer;
    uint64_t start;
    Extent extent;
  };

  bool is_windowed(uint32_t k) const { return (windowed_ >> k & 1) != 0; }
  void put_windowed(uint32_t k, DType dtype, const Range& range);
  void place_windowed();
  Extent shared_extent(uint32_t k) const;

  const char* op_;
  BindingList bindings_;
  OperandKey operand_key_;
  uint32_t present_ = 0;
  uint32_t one_binding_ = 0;
  // The windows of a buffer follow from all operands in it together.
  uint32_t windowed_ = 0;
  std::array<uint32_t, kMaxOperands> at_{};
  std::array<Range, kMaxOperands> ranges_; // set for windowed operands only
};

} // namespace torch_webgpu
