// Launching multi-tensor kernels: as many tensors per dispatch as there are storage bindings.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <array>
#include <cstdint>
#include <optional>

#include "ops/foreach/multi_tensor.h"

namespace torch_webgpu {

struct MultiTensorOp {
  // A number for the op and its flags. With the fields that follow it identifies the kernel, so no
  // two ops may share it.
  uint64_t id = 0;
  std::string_view name;
  DType dtype = DType::kF32;
  uint32_t read = 0; // bits of roles, see MultiTensorVariant
  uint32_t written = 1;
  std::array<SharedNumber, kMaxMultiShared> shared{};
  uint32_t num_shared = 0;
  std::array<std::array<uint32_t, 2>, 8> scalars{};       // as write_scalar() leaves them
  std::string (*body)(const MultiTensorOp& op) = nullptr; // called to build a pipeline only
};

struct MultiTensorOperands {
  std::array<at::TensorList, kMaxMultiRoles> roles{};
  uint32_t num_roles = 0;
  at::TensorList steps{};                           // float32 numbers, or empty
  std::array<at::Tensor, kMaxMultiShared> shared{}; // numbers in device memory
  c10::ArrayRef<c10::Scalar> scalars{};             // none, one for all, or one per tensor
};

/// The dtype of the tensors if the kernels can take them, else nothing. All tensors must be on this
/// device and have one native dtype. Tensors at the same place of their lists must have equal sizes
/// and strides. All must be dense and start at a multiple of the vector size. No tensor may share
/// memory with another one that is written.
std::optional<DType> multi_tensor_dtype(const MultiTensorOperands& operands, uint32_t written);

void multi_tensor(const MultiTensorOp& op, const MultiTensorOperands& operands);

/// The same, on copies of one layout and dtype if the kernel cannot take the tensors themselves.
void multi_tensor_staged(const MultiTensorOp& op, const MultiTensorOperands& operands);

} // namespace torch_webgpu
