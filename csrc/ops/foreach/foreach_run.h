// Elementwise ops on lists of tensors: from a row of pointwise/rows.yaml to multi-tensor
// dispatches.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <array>
#include <optional>
#include <vector>

#include "ops/pointwise/pointwise_source.h"

namespace torch_webgpu {

// Where the expression's second operand comes from. kNumbers is a list of tensors of no dimensions,
// one for each tensor of the first list; callers ask for kList.
enum class SecondOperand : uint8_t { kList, kScalar, kDeviceScalar, kNumbers };
// What s0 is: one number for all tensors, or each tensor's own.
enum class Factor : uint8_t { kCommon, kPerTensor };

struct ForeachForm {
  PointwiseOp op;
  SecondOperand second = SecondOperand::kList;
  Factor factor = Factor::kCommon;
  bool first_is_common = false; // a is ForeachArguments::common, b the list
  bool in_place = true;
};

struct ForeachArguments {
  std::array<at::TensorList, 3> inputs{}; // the lists among the expression's a, b, c
  uint32_t num_inputs = 1;
  c10::ArrayRef<c10::Scalar> scalars{};
  c10::Scalar common = 1; // s0 of Factor::kCommon
  at::Tensor other{};     // SecondOperand::kDeviceScalar
};

/// Runs the op in place (on arguments.inputs[0]), or into new tensors. If the multi-tensor kernels
/// do not take the arguments, these functions do nothing and return false or nullopt.
bool foreach_in_place(ForeachForm form, const ForeachArguments& arguments);
std::optional<std::vector<at::Tensor>> foreach_functional(ForeachForm form,
                                                          const ForeachArguments& arguments);

/// Writes the results into existing tensors.
bool foreach_into(at::TensorList outputs, ForeachForm form, const ForeachArguments& arguments);

} // namespace torch_webgpu
