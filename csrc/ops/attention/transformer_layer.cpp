// The inference path of nn.MultiheadAttention and nn.TransformerEncoderLayer: the operators that
// run a whole layer, here as a sequence of the device's kernels.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_native_multi_head_attention.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "backend/registration.h"
#include "launch/common.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// The shape of a mask: (rows, columns) for all batches, (batch, columns), or the shape of the
// scores.
enum MaskType : int64_t { kSourceMask = 0, kPaddingMask = 1, kWholeMask = 2 };

// `mask` as a view that broadcasts to the scores.
Tensor scores_mask(const Tensor& scores, const Tensor& mask, std::optional<int64_t> type) {
  if (mask.dim() != 2 || scores.dim() != 4) {
    type = kWholeMask;
  }
  TORCH_CHECK(type.has_value(), "Mask Type should be defined");
  switch (*type) {
  case kWholeMask:
    TORCH_CHECK(scores.sizes() == mask.sizes(),
                "For mask_type == 2 mask shape should match input shape");
    return mask;
  case kPaddingMask:
    TORCH_CHECK(scores.size(0) == mask.size(0) && scores.size(2) == mask.size(1),
                "For mask_type == 1 mask shape should be (B, L)");
    return mask.unsqueeze(1).unsqueeze(1);
  case kSourceMask:
    TORCH_CHECK(scores.size(2) == mask.size(0) && scores.size(2) == mask.size(1),
                "For mask_type == 0 mask shape should be (L, L)");
    return mask;
  default:
    TORCH_CHECK(false, "Mask Type should be 0 (src_mask) or 1 (src_key_padding_mask), or 2 "
                       "(default_mask)");
  }
}

Tensor masked_scores(const Tensor& scores, const Tensor& mask, std::optional<int64_t> type) {
  return scores.masked_fill(scores_mask(scores, mask, type),
                            -std::numeric_limits<double>::infinity());
}

void check_bool(const Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "Mask should be a boolean tensor");
}

Tensor masked_softmax(const Tensor& self, const Tensor& mask, std::optional<int64_t> dim,
                      std::optional<int64_t> mask_type) {
  check_same_device("_masked_softmax", {{self, "self"}, {mask, "mask"}});
  check_bool(mask);
  return at::_softmax(masked_scores(self, mask, mask_type), dim.value_or(self.dim() - 1),
                      /*half_to_float=*/false);
}

Tensor masked_softmax_backward(const Tensor& gradient, const Tensor& output, const Tensor& mask,
                               std::optional<int64_t> dim) {
  check_same_device("_masked_softmax_backward",
                    {{gradient, "grad_output"}, {output, "output"}, {mask, "mask"}});
  TORCH_CHECK(gradient.sizes() == mask.sizes(), "Mask shape should match grad shape");
  check_bool(mask);
  const Tensor unmasked = gradient.masked_fill(mask, 0);
  return at::_softmax_backward_data(unmasked, output, dim.value_or(output.dim() - 1),
                                    output.scalar_type())
      .masked_fill_(mask, 0);
}

// (B, T, 3 D) -> q / sqrt(D / heads), k and v, each (B, heads, T, D / heads).
std::tuple<Tensor, Tensor, Tensor> transform_bias_rescale(const Tensor& qkv, const Tensor& bias,
                                                          int64_t heads) {
  check_same_device("_transform_bias_rescale_qkv", {{qkv, "qkv"}, {bias, "qkv_bias"}});
  const int64_t width = qkv.size(2);
  TORCH_CHECK(width % 3 == 0);
  TORCH_CHECK(width / 3 % heads == 0);
  const int64_t head_width = width / 3 / heads;
  const Tensor parts = (qkv + bias)
                           .view({qkv.size(0), qkv.size(1), 3, heads, head_width})
                           .permute({2, 0, 3, 1, 4})
                           .contiguous();
  parts[0].div_(std::sqrt(static_cast<double>(head_width)));
  return {parts[0], parts[1], parts[2]};
}

Tensor project(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& weight) {
  if (key.is_same(value) && query.is_same(key)) {
    return at::linear(query, weight);
  }
  const auto weights = weight.chunk(3, 0);
  return at::cat(
      {at::linear(query, weights[0]), at::linear(key, weights[1]), at::linear(value, weights[2])},
      2);
}

std::tuple<Tensor, Tensor>
multi_head_attention(const Tensor& query, const Tensor& key, const Tensor& value, int64_t embed_dim,
                     int64_t heads, const Tensor& qkv_weight, const Tensor& qkv_bias,
                     const Tensor& proj_weight, const Tensor& proj_bias, const OptionalTensor& mask,
                     bool need_weights, bool average_weights, std::optional<int64_t> mask_type) {
  check_same_device("_native_multi_head_attention", {{query, "query"},
                                                     {key, "key"},
                                                     {value, "value"},
                                                     {qkv_weight, "qkv_weight"},
                                                     {qkv_bias, "qkv_bias"},
                                                     {proj_weight, "proj_weight"},
                                                     {proj_bias, "proj_bias"}});
  auto check_dim = [](const Tensor& tensor, int64_t dim, const char* name) {
    TORCH_CHECK(tensor.dim() == dim, "expected ", dim, "-D `", name, "`, got ", tensor.dim(),
                "-D tensor");
  };
  check_dim(query, 3, "query");
  TORCH_CHECK(query.size(2) == embed_dim, "passed-in embed_dim ", embed_dim,
              " didn't match last dim of query ", query.size(2));
  check_dim(key, 3, "key");
  check_dim(value, 3, "value");
  TORCH_CHECK(query.sizes() == key.sizes() && key.sizes() == value.sizes(),
              "expected `query`/`key`/`value` shapes to match");
  check_dim(qkv_weight, 2, "qkv_weight");
  TORCH_CHECK(qkv_weight.size(0) == 3 * embed_dim,
              "expected `qkv_weight` first dim to be 3x embed_dim");
  TORCH_CHECK(qkv_weight.size(1) == embed_dim, "expected `qkv_weight` second dim to be embed_Dim");
  check_dim(qkv_bias, 1, "qkv_bias");
  TORCH_CHECK(qkv_bias.size(0) == 3 * embed_dim,
              "expected `qkv_bias` first dim and first dim of query to be equal");
  TORCH_CHECK(embed_dim % heads == 0, "`embed_dim` must divide evenly by `num_heads`");

  const Tensor qkv = project(query, key, value, qkv_weight);
  if (qkv.numel() == 0) {
    return {at::empty_like(query), Tensor()};
  }
  const auto [q, k, v] = transform_bias_rescale(qkv, qkv_bias, heads);
  const Tensor scores = at::matmul(q, k.transpose(-2, -1));
  // A row in which everything is masked becomes NaN, as on the CPU. (scaled_dot_product_attention
  // gives 0 for such a row.)
  const bool has_mask = mask.has_value() && mask->defined();
  const Tensor weights =
      at::_softmax(has_mask ? masked_scores(scores, mask->to(at::kBool), mask_type) : scores, -1,
                   /*half_to_float=*/false);
  const Tensor context = at::matmul(weights, v).transpose(1, 2).reshape(query.sizes());
  const Tensor result = at::linear(context, proj_weight, proj_bias);
  if (!need_weights) {
    return {result, Tensor()};
  }
  return {result, average_weights ? weights.mean(1) : weights};
}

Tensor encoder_layer(const Tensor& source, int64_t embed_dim, int64_t heads,
                     const Tensor& qkv_weight, const Tensor& qkv_bias, const Tensor& proj_weight,
                     const Tensor& proj_bias, bool use_gelu, bool norm_first, double eps,
                     const Tensor& norm_weight_1, const Tensor& norm_bias_1,
                     const Tensor& norm_weight_2, const Tensor& norm_bias_2,
                     const Tensor& ffn_weight_1, const Tensor& ffn_bias_1,
                     const Tensor& ffn_weight_2, const Tensor& ffn_bias_2,
                     const OptionalTensor& mask, std::optional<int64_t> mask_type) {
  if (source.numel() == 0) {
    return source.clone();
  }
  auto first_norm = [&](const Tensor& x) {
    return at::layer_norm(x, {embed_dim}, norm_weight_1, norm_bias_1, eps);
  };
  auto second_norm = [&](const Tensor& x) {
    return at::layer_norm(x, {embed_dim}, norm_weight_2, norm_bias_2, eps);
  };
  auto attention = [&](const Tensor& x) {
    return std::get<0>(at::_native_multi_head_attention(
        x, x, x, embed_dim, heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask,
        /*need_weights=*/false, /*average_attn_weights=*/true, mask_type));
  };
  auto feed_forward = [&](const Tensor& x) {
    const Tensor hidden = at::linear(x, ffn_weight_1, ffn_bias_1);
    return at::linear(use_gelu ? at::gelu(hidden) : at::relu(hidden), ffn_weight_2, ffn_bias_2);
  };
  if (norm_first) {
    const Tensor x = source + attention(first_norm(source));
    return x + feed_forward(second_norm(x));
  }
  const Tensor x = first_norm(source + attention(source));
  return second_norm(x + feed_forward(x));
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_masked_softmax", masked_softmax);
  m.impl("_masked_softmax_backward", masked_softmax_backward);
  m.impl("_native_multi_head_attention", multi_head_attention);
  m.impl("_transform_bias_rescale_qkv", transform_bias_rescale);
  m.impl("_transformer_encoder_layer_fwd", encoder_layer);
}

} // namespace
} // namespace torch_webgpu
