// Kernels that torch.compile wrote: their text comes from Python, everything else about a launch is
// settled here.
#pragma once

#include <ATen/core/TensorBase.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launch/binding_list.h"
#include "runtime/error.h"
#include "runtime/pipeline.h"
#include "wgsl/dtype.h"

namespace torch_webgpu {

/// What a compiler states of an operand.
struct CompiledOperand {
  std::string name;
  DType dtype = DType::kF32;
  bool writable = false;
  bool atomic_add = false;
  /// Bytes that an invocation moves at once, 0 if it moves elements only. A power of two.
  uint32_t vector_bytes = 0;
};

/// A message for the error words. Its code is asked for once.
struct CompiledCheck {
  std::string message;
  ErrorKind kind = ErrorKind::kIndex;
};

/// How the operands of one launch lie, as far as the shader depends on it.
struct CompiledPlace {
  /// The operand's slot; those of one buffer share it. Plain slots come before wide ones.
  uint8_t slot = 0;
  /// The slot is bound as vectors: each of its operands moves vectors of that size, aligned.
  bool wide = false;
  /// The operand is a number on the host, whose bits are parameters.
  bool host = false;
  bool operator==(const CompiledPlace&) const = default;
};

/// The parameters of a launch are 32-bit words: the integers, where each operand starts in its
/// binding (in elements), the codes of the checks, then two words for each operand on the host.
class CompiledKernel {
public:
  static constexpr uint32_t kMaxOperands = 64;

  /// The text of the shader for operands at these places, without the library functions that it
  /// calls. It contains `declarations`: bindings and accessors of the operands in plain slots. It
  /// may have conditions that ask for the target, see `assemble_text`.
  using MakeText = std::function<std::string(const std::vector<CompiledPlace>& places,
                                             const std::string& declarations)>;

  CompiledKernel(std::string label, std::vector<CompiledOperand> operands, uint32_t num_integers,
                 std::vector<CompiledCheck> checks, MakeText make_text);

  /// Appends a dispatch of `groups` workgroups. Raises for a tensor on another device or of another
  /// dtype, and for sizes beyond 31 bits, in which kernels count.
  void launch(const at::TensorBase* const* tensors, const int64_t* integers, int64_t groups);
  /// The same kernel, but these operands move elements only, wherever they start.
  CompiledKernel by_elements(const std::vector<uint32_t>& operands) const;
  /// Builds the pipeline of the usual case, each operand in a buffer of its own and aligned, ahead
  /// of the first launch.
  void prepare();
  /// The complete shader of that case.
  std::string source() const;

  const std::string& label() const { return label_; }
  uint32_t num_operands() const { return static_cast<uint32_t>(operands_.size()); }
  uint32_t num_integers() const { return num_integers_; }

private:
  struct Variant {
    std::vector<CompiledPlace> places;
    const Context* context = nullptr;
    uint32_t target = 0;
    uint64_t windows = 0;
    const Pipeline* pipeline = nullptr;
  };
  using Places = std::array<CompiledPlace, kMaxOperands>;

  bool stores_parts_of_words(uint32_t k) const;
  uint32_t binding_width(uint32_t k) const;
  void place(const at::TensorBase* const* tensors, Places& places, BindingList& bindings) const;
  std::vector<CompiledPlace> usual_places() const;
  PipelineSpec spec(const std::vector<CompiledPlace>& places, const SlotWindows& windows,
                    const ShaderTarget& target) const;
  const Pipeline& pipeline(const Places& places, const BindingList& bindings);

  std::string label_;
  std::vector<CompiledOperand> operands_;
  uint32_t num_integers_;
  std::vector<CompiledCheck> checks_;
  std::vector<uint32_t> check_codes_;
  const Context* check_owner_ = nullptr; // whose codes they are
  MakeText make_text_;
  std::vector<Variant> variants_; // mostly one
};

} // namespace torch_webgpu
