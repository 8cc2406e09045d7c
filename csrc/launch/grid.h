// Numbers of workgroups.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>

#include "runtime/commands/command_sink.h"
#include "wgsl/target.h"

namespace torch_webgpu {

/// Workgroups for `count` invocations of `workgroup_size`, folded into y where x would pass the
/// target's limit. Kernels recover the index as (wid.y * num_workgroups.x + wid.x) * size + lid.
inline Grid grid_1d(uint64_t count, uint32_t workgroup_size, const ShaderTarget& target) {
  const uint64_t groups = (count + workgroup_size - 1) / workgroup_size;
  const uint64_t limit = target.max_workgroups_per_dim;
  if (groups <= limit) [[likely]] {
    return {static_cast<uint32_t>(groups), 1, 1};
  }
  const uint64_t rows = (groups + limit - 1) / limit;
  TORCH_CHECK_NOT_IMPLEMENTED(rows <= limit, groups, " workgroups in one dispatch, where target '",
                              target.name, "' has at most ", limit, " in each of two dimensions");
  return {static_cast<uint32_t>((groups + rows - 1) / rows), static_cast<uint32_t>(rows), 1};
}

} // namespace torch_webgpu
