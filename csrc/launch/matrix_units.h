// Subgroup matrices as the kernels use them.
#pragma once

#include <algorithm>

#include "wgsl/target.h"

namespace torch_webgpu {

/// Whether subgroups of 32 multiply matrices of 16 x 16 float16 elements, with sums in float32.
inline bool has_f16_matrices(const ShaderTarget& target) {
  const auto fits = [](const MatrixShape& shape) {
    return shape.type == MatrixType::kF16 && shape.result == MatrixType::kF32 && shape.m == 16 &&
           shape.n == 16 && shape.k == 16;
  };
  return target.shader_f16 && target.subgroups && target.subgroup_matrix &&
         target.subgroup_min_size == 32 && target.subgroup_max_size == 32 &&
         std::ranges::any_of(target.matrix_shapes, fits);
}

} // namespace torch_webgpu
