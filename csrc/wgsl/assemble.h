// Makes the shader of a kernel for the operands and constants that a launch chose.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/pipeline.h"
#include "wgsl/dtype.h"
#include "wgsl/kernel_info.h"
#include "wgsl/kernel_source.h"
#include "wgsl/target.h"

namespace torch_webgpu {

/// The operands, constants and regions of one variant of a kernel: what its pipeline key stands
/// for.
struct KernelForm {
  struct Operand {
    bool present = false;
    DType dtype = DType::kF32;
    // Operands in one buffer share a slot: WebGPU forbids binding a buffer twice in a dispatch that
    // writes it.
    uint8_t slot = 0;
    // With Access::kWords: stores of several neighbours write whole words, so 1- and 2-byte types
    // need no atomics. For a list: stores write whole vectors. With Access::kVectors: the operand
    // is read in vectors.
    bool whole_words = false;
  };
  std::vector<Operand> operands;    // as KernelInfo::operands
  std::vector<uint32_t> consts;     // as KernelInfo::consts
  std::vector<std::string> regions; // as KernelInfo::regions
  SlotWindows windows;
  uint32_t tensors = 0; // of each list
};

/// The complete shader: constants, the kernel's text with conditions resolved and regions filled
/// in, bindings and accessors of the operands, and what it uses of the library. Raises kRuntime,
/// with the names of kernel and operand, if the kernel does not allow these choices.
PipelineSpec assemble(std::string label, const KernelInfo& kernel, const KernelForm& form,
                      const ShaderTarget& target);

/// The complete shader of a text that has bindings and accessors, and whose conditions ask for
/// nothing but the target (`ShaderTarget::condition`): conditions resolved, `enable subgroups`
/// where the rest speaks of them, and what it uses of the library. Raises kRuntime, with the label,
/// for another condition.
std::string assemble_text(const std::string& label, std::string_view text,
                          const ShaderTarget& target);

} // namespace torch_webgpu
