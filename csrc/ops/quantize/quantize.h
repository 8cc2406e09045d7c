// Quantized tensors as the integers that they hold.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_webgpu {

/// The integers of a quantized tensor of this device or the CPU, as a view of its memory. Raises
/// NotImplementedError for elements that are parts of bytes.
at::Tensor integers_of(const at::Tensor& quantized);

} // namespace torch_webgpu
