// Conditions on the values of a tensor. The device checks them; the error arrives with the next
// synchronization.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace torch_webgpu {

/// RuntimeError with `message` unless all elements of the bool tensor are true.
void require_true(const char* op, const at::Tensor& tensor, const std::string& message);

/// RuntimeError with `message` unless all elements lie in [0, 1]. Does nothing for dtypes other
/// than float32 and the 16-bit floats.
void require_probabilities(const char* op, const at::Tensor& tensor, const std::string& message);

/// RuntimeError with `message` if an element is negative or NaN. The dtype is a native float.
void require_not_negative(const char* op, const at::Tensor& tensor, const std::string& message);

} // namespace torch_webgpu
