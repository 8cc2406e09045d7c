// Which target launches are planned for.
#pragma once

#include <ATen/core/TensorBase.h>

#include <atomic>
#include <memory>

#include "backend/tensor.h"
#include "runtime/context.h"
#include "wgsl/target.h"

namespace torch_webgpu {

/// From here on, launches of this thread, and of the backward passes that the thread starts, are
/// planned for `target` instead of the device's own target. Scopes nest.
void push_target(ShaderTarget target);
/// Ends the innermost scope.
void pop_target();

namespace detail {
inline std::atomic<uint32_t> target_scopes{0}; // open now, in any thread
const ShaderTarget& scoped_target(Context& context);
} // namespace detail

/// A device that so many workgroups keep busy computes on cores of a CPU.
inline bool is_software(const ShaderTarget& target) { return target.workgroups_to_fill <= 16; }

/// The target that launches in `context` are planned for.
inline const ShaderTarget& plan_target(Context& context) {
  if (C10_LIKELY(detail::target_scopes.load(std::memory_order_relaxed) == 0)) {
    return context_targets.of(context).device();
  }
  return detail::scoped_target(context);
}
/// The target that a launch over this tensor is planned for.
inline const ShaderTarget& plan_target(const at::TensorBase& tensor) {
  return plan_target(context_of(tensor));
}

} // namespace torch_webgpu
