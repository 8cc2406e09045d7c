// The one operator that float64 has on the device.
#pragma once

#include <ATen/TensorIterator.h>

namespace torch_webgpu {

/// 1 / x for a float64 iterator: GradScaler inverts its scale in float64. False where the operands
/// are larger than a binding.
bool reciprocal_double(at::TensorIteratorBase& iter);

} // namespace torch_webgpu
