#include "launch/pipelines.h"

#include "wgsl/wgsl_library.h"

namespace torch_webgpu {

void check_bindings(const PipelineSpec& spec, const ShaderTarget& target) {
  const uint32_t buffers = spec.binding.num_buffers + (spec.binding.checks_indices ? 1 : 0);
  TORCH_CHECK_NOT_IMPLEMENTED(buffers <= target.max_storage_buffers, spec.label,
                              "(): its kernel binds ", buffers, " storage buffers, where target '",
                              target.name, "' has ", target.max_storage_buffers);
}

PipelineSpec completed(PipelineSpec spec, const ShaderTarget& target) {
  check_bindings(spec, target);
  spec.source = complete_shader(spec.source, target);
  return spec;
}

} // namespace torch_webgpu
