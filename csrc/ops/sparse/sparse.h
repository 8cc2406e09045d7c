// What kernels of both sparse layouts share.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_webgpu {

/// The product of a sparse matrix of `count` rows, whose element values[n] stands at rows[n] and
/// columns[n], with a dense one, [count, dense.size(1)]. Elements at one place add up. Sums of
/// halves are float32.
at::Tensor sparse_times_dense(const at::Tensor& rows, const at::Tensor& columns,
                              const at::Tensor& values, int64_t count, const at::Tensor& dense);

/// beta * self + alpha * product, where `self` broadcasts, and is not read if beta is 0.
at::Tensor scaled_sum(const at::Tensor& self, const at::Tensor& product, const at::Scalar& beta,
                      const at::Scalar& alpha);

} // namespace torch_webgpu
