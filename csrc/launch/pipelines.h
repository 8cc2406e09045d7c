// Pipelines for a target.
#pragma once

#include <c10/util/Exception.h>

#include <string_view>

#include "backend/device.h"
#include "runtime/context.h"
#include "wgsl/target.h"

namespace torch_webgpu {

/// `spec` for a target: its text with what it needs of the WGSL library. Raises
/// NotImplementedError if the kernel needs more than the target has.
PipelineSpec completed(PipelineSpec spec, const ShaderTarget& target);
/// Raises NotImplementedError if the kernel, whose shader is complete, binds more storage buffers
/// or uses more workgroup memory than the target has.
void check_limits(const PipelineSpec& spec, const ShaderTarget& target);

/// Raises, with PyTorch's words, if the operand's buffer belongs to another context than the
/// operands before it. The one check of devices for all operators: every operand of every launch
/// comes here, unless it lies in the launch's context.
inline void check_context(std::string_view op, const Buffer& buffer, const Context& context) {
  TORCH_CHECK(buffer.context == &context,
              "Expected all tensors to be on the same device, but found at least two devices, ",
              device_of(context), " and ", device_of(*buffer.context), "! (in ", op, "())");
}

} // namespace torch_webgpu
