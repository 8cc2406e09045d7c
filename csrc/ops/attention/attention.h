// What tests see of attention beside its operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

namespace torch_webgpu {

/// Which bfloat16 heads the kernels on matrices take, and their powers of two: the pairs of words
/// that attention/scales.wgsl describes, as int64. With `g`, the gradient of the result, those of
/// the backward pass, and the words that attention_ranges.wgsl writes for each row of queries.
std::pair<at::Tensor, at::Tensor> attention_scales(const at::Tensor& q, const at::Tensor& k,
                                                   const at::Tensor& v, double scale,
                                                   const std::optional<at::Tensor>& g);

} // namespace torch_webgpu
