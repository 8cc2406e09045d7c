// What tests see of attention beside its operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>
#include <utility>

namespace torch_webgpu {

/// Which bfloat16 heads the kernels on matrices take, and their powers of two: the pairs of words
/// that attention/scales.wgsl describes, as int64. With `g`, the gradient of the result, those of
/// the backward pass, and the words that attention_ranges.wgsl writes for each row of queries.
std::pair<at::Tensor, at::Tensor> attention_scales(const at::Tensor& q, const at::Tensor& k,
                                                   const at::Tensor& v, double scale,
                                                   const std::optional<at::Tensor>& g);

struct ScoreProgram;

/// The result, and the natural logarithms of each row's sum of exponentials, of attention with
/// scores that a program changes. Tensors of four dimensions; heads of keys may be shared.
std::tuple<at::Tensor, at::Tensor> flex_attention(const at::Tensor& query, const at::Tensor& key,
                                                  const at::Tensor& value,
                                                  const ScoreProgram& program, double scale);

/// The gradients of query, key and value. grad_lse: of the logarithms; absent: zero.
std::tuple<at::Tensor, at::Tensor, at::Tensor>
flex_attention_backward(const at::Tensor& grad_out, const std::optional<at::Tensor>& grad_lse,
                        const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        const at::Tensor& out, const at::Tensor& lse, const ScoreProgram& program,
                        double scale);

} // namespace torch_webgpu
