#include "launch/pipelines.h"

#include "wgsl/wgsl_library.h"
#include "wgsl/workgroup_memory.h"

namespace torch_webgpu {

void check_limits(const PipelineSpec& spec, const ShaderTarget& target) {
  const uint32_t buffers = spec.binding.num_buffers + (spec.binding.checks_indices ? 1 : 0);
  TORCH_CHECK_NOT_IMPLEMENTED(buffers <= target.max_storage_buffers, spec.label,
                              "(): its kernel binds ", buffers, " storage buffers, where target '",
                              target.name, "' has ", target.max_storage_buffers);
  const uint64_t bytes = workgroup_memory(spec.source);
  TORCH_CHECK_NOT_IMPLEMENTED(bytes <= target.max_workgroup_storage, spec.label,
                              "(): its kernel needs ", bytes,
                              " bytes of workgroup memory, where target '", target.name, "' has ",
                              target.max_workgroup_storage);
}

PipelineSpec completed(PipelineSpec spec, const ShaderTarget& target) {
  spec.source = complete_shader(spec.source, target);
  check_limits(spec, target);
  return spec;
}

} // namespace torch_webgpu
