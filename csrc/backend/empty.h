// Allocating tensors without the dispatcher, for kernels and generated wrappers.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

namespace torch_webgpu {

/// Uninitialized webgpu tensor. Of the options only the dtype, the memory format and what is
/// invalid on this device (layout, pin_memory, another device index) matter.
at::Tensor empty_webgpu(at::IntArrayRef size, const at::TensorOptions& options);
at::Tensor empty_strided_webgpu(at::IntArrayRef size, at::IntArrayRef stride,
                                const at::TensorOptions& options);

/// A contiguous one.
at::Tensor empty_webgpu(at::IntArrayRef size, at::ScalarType dtype);

} // namespace torch_webgpu
