// The operators on nested tensors that nn.TransformerEncoder uses. From a padding mask it makes a
// nested tensor (sequences of different lengths), runs its layers on it, and pads the result. Here
// the layers compute on padded tensors. Padding costs time, but the results are the same.
#include <ATen/NestedTensorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_native_multi_head_attention.h>
#include <ATen/ops/_nested_tensor_from_mask_left_aligned.h>
#include <ATen/ops/_transformer_encoder_layer_fwd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "launch/common.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// The sequences of a nested tensor. Sequence n has lengths[n] rows of `width` numbers. In the
// padded tensor every sequence takes `longest` rows.
struct Sequences {
  std::vector<int64_t> lengths;
  int64_t longest = 0;
  int64_t width = 0;
  c10::Device device = webgpu_device(); // of the rows

  int64_t count() const { return static_cast<int64_t>(lengths.size()); }
  // The indices of those rows of the padded tensor that are not padding. Computed at the first
  // call; `longest` must not change afterwards.
  const Tensor& rows() const {
    if (!rows_.defined()) {
      std::vector<int64_t> rows;
      for (int64_t n = 0; n < count(); ++n) {
        for (int64_t i = 0; i < lengths[n]; ++i) {
          rows.push_back(n * longest + i);
        }
      }
      rows_ = at::tensor(rows, at::kLong).to(device);
    }
    return rows_;
  }

private:
  mutable Tensor rows_;
};

// A mask over the rows of the padded tensor: true where a row is padding.
Tensor padding_mask(const Sequences& sequences) {
  return at::full({sequences.count() * sequences.longest}, true,
                  at::TensorOptions(sequences.device).dtype(at::kBool))
      .index_fill_(0, sequences.rows(), false)
      .view({sequences.count(), sequences.longest});
}

Sequences sequences_of(const Tensor& nested) {
  const auto* impl = at::native::get_nested_tensor_impl(nested);
  const Tensor& sizes = impl->get_nested_sizes();
  TORCH_CHECK_NOT_IMPLEMENTED(sizes.dim() == 2 && sizes.size(1) == 2 &&
                                  at::native::nested_tensor_impl_is_contiguous(impl),
                              "webgpu: nested tensors are sequences of rows only");
  Sequences out;
  out.device = impl->get_buffer().device();
  out.width = sizes.size(0) == 0 ? 0 : sizes[0][1].item<int64_t>();
  for (int64_t n = 0; n < sizes.size(0); ++n) {
    TORCH_CHECK_NOT_IMPLEMENTED(sizes[n][1].item<int64_t>() == out.width,
                                "webgpu: the rows of nested tensors must be equally long");
    out.lengths.push_back(sizes[n][0].item<int64_t>());
    out.longest = std::max(out.longest, out.lengths.back());
  }
  return out;
}

Tensor pad(const Tensor& nested, const Sequences& sequences, double padding) {
  const Tensor buffer = at::native::get_nested_tensor_impl(nested)->get_buffer();
  const Tensor padded =
      at::full({sequences.count() * sequences.longest, sequences.width}, padding, buffer.options());
  padded.index_copy_(0, sequences.rows(), buffer.view({-1, sequences.width}));
  return padded.view({sequences.count(), sequences.longest, sequences.width});
}

Tensor unpad(const Tensor& padded, const Sequences& sequences) {
  const Tensor buffer =
      padded.reshape({-1, sequences.width}).index_select(0, sequences.rows()).view(-1);
  std::vector<int64_t> sizes;
  for (const int64_t length : sequences.lengths) {
    sizes.insert(sizes.end(), {length, sequences.width});
  }
  return at::detail::make_tensor<at::native::NestedTensorImpl>(
      buffer, at::tensor(sizes, at::kLong).view({sequences.count(), 2}));
}

// Computed on the CPU, because the caller needs the bool on the host. `mask` is a CPU tensor.
bool is_left_aligned_on_cpu(const Tensor& t, const Tensor& mask) {
  TORCH_CHECK(t.dim() == 3, "Input should be a 3D tensor, N * L * D");
  const Tensor shape = at::full({1}, false, at::kBool).expand(t.sizes());
  return at::_nested_tensor_from_mask_left_aligned(shape, mask);
}

bool is_left_aligned(const Tensor& t, const Tensor& mask) {
  return is_left_aligned_on_cpu(t, mask.cpu());
}

Tensor from_mask(const Tensor& t, const Tensor& mask, bool mask_check) {
  TORCH_CHECK(t.size(0) > 0, "stack expects a non-empty TensorList");
  const Tensor host_mask = mask.cpu();
  const bool aligned = is_left_aligned_on_cpu(t, host_mask);
  TORCH_CHECK(!mask_check || aligned, "Mask must be left-aligned without gaps");
  Sequences sequences;
  const Tensor lengths = host_mask.sum(1);
  sequences.lengths.assign(lengths.const_data_ptr<int64_t>(),
                           lengths.const_data_ptr<int64_t>() + lengths.numel());
  sequences.longest = t.size(1);
  sequences.width = t.size(2);
  return unpad(t, sequences);
}

Tensor to_padded_tensor(const Tensor& self, double padding, at::OptionalIntArrayRef output_size) {
  Sequences sequences = sequences_of(self);
  if (output_size.has_value()) {
    const at::IntArrayRef size = *output_size;
    TORCH_CHECK(size.size() == 3, "Expected output_size to have 3 dimensions but got ",
                size.size());
    TORCH_CHECK(size[0] == sequences.count() && size[1] >= sequences.longest &&
                    size[2] >= sequences.width,
                "Value in output_size is less than NestedTensor padded size. Truncation is not "
                "supported.");
    TORCH_CHECK_NOT_IMPLEMENTED(size[2] == sequences.width,
                                "webgpu: the rows of nested tensors cannot be padded");
    sequences.longest = size[1];
  }
  return pad(self, sequences, padding);
}

void check_no_mask(const OptionalTensor& mask) {
  TORCH_CHECK(!mask.has_value() || !mask->defined(), "NestedTensor with mask is not supported yet");
}

std::tuple<Tensor, Tensor> attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                     int64_t embed_dim, int64_t heads, const Tensor& qkv_weight,
                                     const Tensor& qkv_bias, const Tensor& proj_weight,
                                     const Tensor& proj_bias, const OptionalTensor& mask,
                                     bool need_weights, bool average_weights,
                                     std::optional<int64_t>) {
  check_no_mask(mask);
  const Sequences sequences = sequences_of(query);
  for (const Tensor& other : {key, value}) {
    TORCH_CHECK_NOT_IMPLEMENTED(other.is_nested() &&
                                    sequences_of(other).lengths == sequences.lengths,
                                "webgpu: nested query, key and value must be equally long");
  }
  const Tensor q = pad(query, sequences, 0);
  const Tensor k = key.is_same(query) ? q : pad(key, sequences, 0);
  const Tensor v = value.is_same(key) ? k : pad(value, sequences, 0);
  auto [result, weights] = at::_native_multi_head_attention(
      q, k, v, embed_dim, heads, qkv_weight, qkv_bias, proj_weight, proj_bias,
      padding_mask(sequences), need_weights, average_weights, /*mask_type=*/1);
  return {unpad(result, sequences), weights};
}

Tensor encoder_layer(const Tensor& source, int64_t embed_dim, int64_t heads,
                     const Tensor& qkv_weight, const Tensor& qkv_bias, const Tensor& proj_weight,
                     const Tensor& proj_bias, bool use_gelu, bool norm_first, double eps,
                     const Tensor& norm_weight_1, const Tensor& norm_bias_1,
                     const Tensor& norm_weight_2, const Tensor& norm_bias_2,
                     const Tensor& ffn_weight_1, const Tensor& ffn_bias_1,
                     const Tensor& ffn_weight_2, const Tensor& ffn_bias_2,
                     const OptionalTensor& mask, std::optional<int64_t>) {
  check_no_mask(mask);
  const Sequences sequences = sequences_of(source);
  const Tensor result = at::_transformer_encoder_layer_fwd(
      pad(source, sequences, 0), embed_dim, heads, qkv_weight, qkv_bias, proj_weight, proj_bias,
      use_gelu, norm_first, eps, norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2,
      ffn_weight_1, ffn_bias_1, ffn_weight_2, ffn_bias_2, padding_mask(sequences),
      /*mask_type=*/1);
  return unpad(result, sequences);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_nested_tensor_from_mask", from_mask);
  m.impl("_nested_tensor_from_mask_left_aligned", is_left_aligned);
}

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  m.impl("_native_multi_head_attention", attention);
  m.impl("_transformer_encoder_layer_fwd", encoder_layer);
  m.impl("to_padded_tensor", to_padded_tensor);
}

} // namespace
} // namespace torch_webgpu
