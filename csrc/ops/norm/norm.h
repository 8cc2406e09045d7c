// What the normalization layers share.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <optional>
#include <string>

namespace torch_webgpu {

/// Variance (without correction) and mean of `input` in float32, over the dimensions in which the
/// results have size 1.
void moments(const at::Tensor& var, const at::Tensor& mean, const at::Tensor& input);

/// Sums of `gradient`, and of its products with (input - mean) * rstd, over the dimensions in which
/// the results have size 1. mean and rstd broadcast. All are views of equally many dimensions.
void normalized_sums(const at::Tensor& sum, const at::Tensor& product, const at::Tensor& gradient,
                     const at::Tensor& input, const at::Tensor& mean, const at::Tensor& rstd);

/// Whether the dtype of every defined tensor is a floating point dtype that kernels compute in.
bool are_native_floats(std::initializer_list<at::Tensor> tensors);

/// The shape of contiguous rows and of their weights.
struct Rows {
  int64_t rows;
  int64_t length;
  int64_t groups;   // number of rows after which the weights repeat
  int64_t channels; // weights per group
  int64_t inner;    // consecutive elements of one weight
};

/// Normalizes rows to y, with their mean and 1 / deviation. Without a mean (an undefined tensor)
/// rows are not centered, and rstd is 1 / root mean square. All tensors are contiguous; weight and
/// bias may be undefined.
void normalize_rows(const char* op, const Rows& rows, const at::Tensor& x, const at::Tensor& weight,
                    const at::Tensor& bias, double eps, const at::Tensor& y, const at::Tensor& mean,
                    const at::Tensor& rstd);
/// The gradient of normalize_rows with respect to x, into y; `mean` is undefined where it
/// was there. Also computes `weight_gradient` and `bias_gradient` where they are defined: they are
/// contiguous, and all rows have the same weights (groups is 1).
void gradient_of_rows(const char* op, const Rows& rows, const at::Tensor& gradient,
                      const at::Tensor& x, const at::Tensor& mean, const at::Tensor& rstd,
                      const at::Tensor& weight, const at::Tensor& y,
                      const at::Tensor& weight_gradient = {}, const at::Tensor& bias_gradient = {});

/// The gradients of weight and bias alone; one of them may be undefined. groups is 1.
void gradient_of_weights(const Rows& rows, const at::Tensor& gradient, const at::Tensor& x,
                         const at::Tensor& mean, const at::Tensor& rstd,
                         const at::Tensor& weight_gradient, const at::Tensor& bias_gradient);

/// The tensor as a contiguous one; undefined if there is none.
at::Tensor packed(const std::optional<at::Tensor>& tensor);

/// An optional argument as a tensor, undefined where there is none.
inline at::Tensor value_of(const std::optional<at::Tensor>& tensor) {
  return tensor.value_or(at::Tensor());
}

} // namespace torch_webgpu
