#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace torch_webgpu {

/// Stands in kernels that call operators which torch.autocast casts, such as products. Autocast has
/// seen the kernel's own operator, and is still on for those: it would make halves of what the
/// kernel computes in float32.
struct NoAutocast {
  const c10::impl::ExcludeDispatchKeyGuard guard{c10::autocast_dispatch_keyset};
};

} // namespace torch_webgpu
