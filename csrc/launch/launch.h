// One dispatch of a kernel: operands by name, constants, parameters, and the pipeline key that
// follows from them. The build derives a class from Launch for each kernel file (tools/contract),
// with a function for each operand and constant; op files use those.
#pragma once

#include <ATen/ceil_div.h>
#include <ATen/core/TensorBase.h>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "launch/grid.h"
#include "launch/operand_launch.h"
#include "wgsl/kernel_info.h"

namespace torch_webgpu {

class Launch : public OperandLaunch {
public:
  const KernelInfo& kernel() const { return kernel_; }

  /// Workgroups for so many invocations in groups of the kernel's size, folded into two dimensions
  /// where one would pass the limit.
  Grid grid_of(uint64_t invocations) const {
    return grid_1d(invocations, kernel_.workgroup, target());
  }
  /// The same for so many workgroups.
  Grid grid_of_groups(uint64_t workgroups) const { return grid_1d(workgroups, 1, target()); }

protected:
  Launch(const KernelInfo& kernel, const char* op) : OperandLaunch(op), kernel_(kernel) {}

  /// Adds a tensor as operand `k`, with its own dtype. Raises NotImplementedError, naming operator,
  /// operand and dtype, for a dtype that the kernel does not take.
  void bind(uint32_t k, const at::TensorBase& tensor);
  /// Adds a tensor whose elements the kernel reads or writes as `dtype`, of the same size in bytes.
  void bind_as(uint32_t k, const at::TensorBase& tensor, DType dtype);
  /// Adds the elements of `dtype` in bytes [begin, end) of the buffer; `begin` is a multiple of
  /// their size. For ops that have no tensor of them: the elements' dtype is not checked.
  void bind_range(uint32_t k, const Buffer& buffer, uint64_t begin, uint64_t end, DType dtype);
  /// The same for an operand that the kernel writes.
  void bind_written_range(uint32_t k, WrittenBuffer buffer, uint64_t begin, uint64_t end,
                          DType dtype) {
    bind_range(k, *buffer, begin, end, dtype);
  }
  /// Says that operand `k` (Access::kWords) starts at a word, and that nothing but the kernel's
  /// stores of several neighbours together writes to its words.
  void own_words(uint32_t k);
  /// Says that the kernel reads operand `k` in vectors of 16 bytes (Access::kVectors): nothing else
  /// lies in its binding.
  void read_vectors(uint32_t k);

  void set(uint32_t constant, uint32_t value);
  /// What a constant was set to.
  uint64_t value(uint32_t constant) const {
    const ConstInfo& declared = kernel_.consts[constant];
    const int bits = std::bit_width(declared.values.back() >> declared.zero_bits);
    const uint64_t in_key = const_key_ >> declared.key_shift & ((uint64_t{1} << bits) - 1);
    return in_key << declared.zero_bits;
  }

  /// The code that the kernel writes to the error words to say that `message` happened.
  uint32_t error_code(const std::string& message, ErrorKind kind) {
    return owner().stream.error_code(message, kind);
  }

  /// Appends the dispatch. make_regions() gives the text of the kernel's regions, in their order;
  /// it is called for a new pipeline only, and the text must follow from operands and constants.
  template <typename MakeRegions>
  void dispatch(const void* params, uint32_t bytes, Grid grid, MakeRegions&& make_regions) {
    check_complete();
    OperandLaunch::dispatch(key(), params, bytes, grid,
                            [&] { return make_spec(form(make_regions())); });
  }

  // For launches that find the bindings themselves.

  /// The dtype in which the kernel takes elements of that type as operand `k`. Raises
  /// NotImplementedError if there is none.
  DType checked_dtype(uint32_t k, at::ScalarType type) const;
  /// No other operand lies in the words, or vectors, of operand `k`.
  void take_whole(uint32_t k) {
    operands_[k].whole_words = true;
    const_key_ |= uint64_t{1} << (kConstBits + k);
    require_one_binding(k);
  }
  void check_complete() const {
    const uint32_t all_consts = (uint32_t{1} << kernel_.consts.size()) - 1;
    if (C10_UNLIKELY((present() & kernel_.required) != kernel_.required ||
                     consts_set_ != all_consts)) {
      raise_incomplete();
    }
  }
  PipelineKey key() const { return key_of(family_of(kernel_.id), const_key_); }
  KernelForm form(std::vector<std::string> regions) const;
  PipelineSpec make_spec(const KernelForm& form) const;

private:
  // In the key's word of constants, the bits above the constants say which operands own their
  // words.
  static constexpr uint32_t kConstBits = 64 - kMaxOperands; // tools/contract/parse.py checks this

  Use use(uint32_t k) const {
    return is_written(kernel_.operands[k].access) ? Use::kWrite : Use::kRead;
  }
  void check_operand(uint32_t k, DType dtype, uint64_t begin);
  [[noreturn]] void raise_incomplete() const;

  const KernelInfo& kernel_;
  uint64_t const_key_ = 0;
  uint32_t consts_set_ = 0;
};

} // namespace torch_webgpu
