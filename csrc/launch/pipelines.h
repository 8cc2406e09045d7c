// Pipelines for a target.
#pragma once

#include <c10/util/Exception.h>

#include <string_view>

#include "runtime/context.h"
#include "wgsl/target.h"

namespace torch_webgpu {

/// `spec` for a target: its text with what it needs of the WGSL library. Raises
/// NotImplementedError if the kernel needs more than the target has.
PipelineSpec completed(PipelineSpec spec, const ShaderTarget& target);
/// Raises NotImplementedError if the kernel, whose shader is complete, binds more storage buffers
/// or uses more workgroup memory than the target has.
void check_limits(const PipelineSpec& spec, const ShaderTarget& target);

/// Raises if the operand's buffer belongs to another context than the operands before it.
inline void check_context(std::string_view op, const Buffer& buffer, const Context& context) {
  TORCH_CHECK(
      buffer.context == &context, op,
      "(): Expected all tensors to be on the same device, but its operands lie on two WebGPU "
      "devices");
}

} // namespace torch_webgpu
