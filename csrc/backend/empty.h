// Allocating tensors without the dispatcher, for kernels and generated wrappers.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

namespace torch_webgpu {

/// Uninitialized webgpu tensor. Of the options the dtype, the device's index (none: the current
/// device), the memory format and what is invalid here (layout, pin_memory, an index that no device
/// has) matter.
at::Tensor empty_webgpu(at::IntArrayRef size, const at::TensorOptions& options);
at::Tensor empty_strided_webgpu(at::IntArrayRef size, at::IntArrayRef stride,
                                const at::TensorOptions& options);

/// A contiguous one. `device` is that of a webgpu tensor: an operand of the op.
at::Tensor empty_webgpu(at::IntArrayRef size, at::ScalarType dtype, c10::Device device);

} // namespace torch_webgpu
