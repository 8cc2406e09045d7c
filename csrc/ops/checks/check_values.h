// Conditions on the values of a tensor. The device checks them; the error arrives with the next
// synchronization.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace torch_webgpu {

/// RuntimeError with `message` unless all elements of the bool tensor are true.
void require_true(const char* op, const at::Tensor& tensor, const std::string& message);

/// RuntimeError with `message` unless all elements lie in [0, 1]. Only of float32 and 16-bit
/// floats.
void require_probabilities(const char* op, const at::Tensor& tensor, const std::string& message);

/// RuntimeError with `message` if an element of the tensor, of native floats, is negative.
void require_not_negative(const char* op, const at::Tensor& tensor, const std::string& message);

} // namespace torch_webgpu
