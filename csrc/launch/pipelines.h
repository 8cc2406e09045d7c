// Pipelines for a target.
#pragma once

#include <c10/util/Exception.h>

#include <string_view>
#include <utility>

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

/// The pipeline for `key` and the target. make_spec() makes it but for the library, and is called
/// for a new one only.
template <typename MakeSpec>
const Pipeline& pipeline_for(Context& context, const ShaderTarget& target, PipelineKey key,
                             MakeSpec&& make_spec) {
  key.target = target.number;
  return context.pipelines.get(key, [&] { return completed(make_spec(), target); });
}

} // namespace torch_webgpu
