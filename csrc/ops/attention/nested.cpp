// The operators on nested and on jagged tensors (sequences of different lengths) that ATen writes
// for each device apart. What CPU and CUDA share, the build registers (layouts in tools/codegen).
//
// nn.TransformerEncoder makes a nested tensor from a padding mask, runs its layers on it, and pads
// the result. Here the layers compute on padded tensors. Padding costs time, but the results are
// the same.
#include <ATen/NestedTensorImpl.h>
#include <ATen/SDPBackend.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/nested/NestedTensorMath.h>
#include <ATen/ops/_native_multi_head_attention.h>
#include <ATen/ops/_nested_from_padded_native.h>
#include <ATen/ops/_nested_tensor_from_mask_left_aligned.h>
#include <ATen/ops/_nested_tensor_from_tensor_list.h>
#include <ATen/ops/_transformer_encoder_layer_fwd.h>
#include <ATen/ops/add_native.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm_native.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul_native.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/to_padded_tensor_native.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <vector>

#include "backend/registration.h"
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

// Products, masks and softmaxes of nested tensors are operators of their own.
int64_t sdp_choice(const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&, double, bool,
                   std::optional<double>, bool) {
  return static_cast<int64_t>(at::SDPBackend::math);
}

// Over the last dimension, which is all that PyTorch's CPU sums over.
Tensor sum(const Tensor& self, at::OptionalIntArrayRef dims, bool keepdim,
           std::optional<at::ScalarType> dtype) {
  TORCH_CHECK(dims.has_value() && dims->size() == 1,
              "NestedTensor only allows reduction of a single dimension for now.");
  TORCH_CHECK(keepdim, "NestedTensor always requires keepdim=True for now.");
  TORCH_CHECK(at::maybe_wrap_dim((*dims)[0], self.dim()) == self.dim() - 1,
              "NestedTensor can only be reduced across the last dimension for now.");
  std::vector<Tensor> parts = self.unbind();
  for (Tensor& part : parts) {
    part = part.sum({-1}, /*keepdim=*/true, dtype);
  }
  return at::_nested_tensor_from_tensor_list(parts);
}

Tensor sum_backward(const Tensor& gradient, const Tensor& self, at::OptionalIntArrayRef,
                    bool /*keepdim*/) {
  const std::vector<Tensor> sums = gradient.unbind();
  std::vector<Tensor> parts = self.unbind();
  for (size_t n = 0; n < parts.size(); ++n) {
    parts[n] = sums[n].expand_as(parts[n]).contiguous();
  }
  return at::_nested_tensor_from_tensor_list(parts);
}

// A dense operand that PyTorch broadcasts over the sequences of `nested`, as a nested tensor of the
// same sizes. They are [B, 1, D] for [B, *, D], [B, 1] for [B, *] and [C, 1, 1] for [B, C, *, *].
// Undefined for others, which ATen's operators refuse.
Tensor repeat_for_sequences(const Tensor& nested, const Tensor& dense) {
  const auto* impl = at::native::get_nested_tensor_impl(nested);
  const Tensor& sizes = impl->get_nested_sizes();
  const int64_t rank = nested.dim();
  if (sizes.dim() != 2 || dense.device() != nested.device()) {
    return {};
  }
  const bool by_sequence = (rank == 2 || rank == 3) && dense.dim() == rank &&
                           dense.size(0) == sizes.size(0) && dense.size(1) == 1 &&
                           (rank == 2 || impl->opt_size(2) == dense.size(2));
  if (by_sequence) {
    const Tensor of_row = at::repeat_interleave(sizes.select(1, 0)).to(dense.device());
    return at::detail::make_tensor<at::native::NestedTensorImpl>(
        dense.index_select(0, of_row).view(-1), sizes);
  }
  if (rank == 4 && dense.dim() == 3 && impl->opt_size(1) == dense.size(0) && dense.size(1) == 1 &&
      dense.size(2) == 1) {
    std::vector<Tensor> parts = nested.unbind();
    for (Tensor& part : parts) {
      part = dense.expand_as(part);
    }
    return at::_nested_tensor_from_tensor_list(parts);
  }
  return {};
}

// `op` on nested tensors, one of which may be a dense operand on the right.
template <class Op, class... Rest>
Tensor with_dense_operand(Op op, const Tensor& self, const Tensor& other, const Rest&... rest) {
  if (self.is_nested() && !other.is_nested() && other.dim() > 0) {
    const Tensor repeated = repeat_for_sequences(self, other);
    if (repeated.defined()) {
      return op(self.contiguous(), repeated, rest...);
    }
  }
  return op(self, other, rest...);
}

Tensor add(const Tensor& self, const Tensor& other, const at::Scalar& alpha) {
  return with_dense_operand(at::native::NestedTensor_add_Tensor, self, other, alpha);
}

Tensor mul(const Tensor& self, const Tensor& other) {
  return with_dense_operand(at::native::NestedTensor_mul_Tensor, self, other);
}

// ATen reads the sizes on the host.
Tensor from_padded(const Tensor& padded, const Tensor& sizes, bool transform) {
  TORCH_CHECK(sizes.dim() == 2 && sizes.scalar_type() == at::kLong,
              "_nested_from_padded: expected sizes to be a matrix of int64, but got ",
              sizes.scalar_type(), " of shape ", sizes.sizes());
  return at::native::nested_from_padded_generic(padded, sizes.cpu().contiguous(), transform);
}

// The elements of a contiguous nested tensor as rows [rows, normalized elements].
Tensor rows_to_normalize(const Tensor& nested, at::IntArrayRef normalized,
                         const OptionalTensor& weight, const OptionalTensor& bias) {
  TORCH_CHECK(nested.is_nested(), "layer_norm of a nested tensor needs nested tensors");
  const Tensor contiguous = nested.contiguous();
  const auto* impl = at::native::get_nested_tensor_impl(contiguous);
  at::native::_check_nested_layer_norm_inputs(*impl, normalized, weight.value_or(Tensor()),
                                              bias.value_or(Tensor()));
  return impl->get_buffer().view({-1, c10::multiply_integers(normalized)});
}

Tensor with_elements(const Tensor& like, const Tensor& elements) {
  return at::detail::make_tensor<at::native::NestedTensorImpl>(
      elements.reshape(-1), at::native::get_nested_tensor_impl(like)->get_nested_sizes());
}

OptionalTensor flat(const OptionalTensor& t) {
  return t.has_value() && t->defined() ? t->reshape(-1) : OptionalTensor();
}

std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& input, at::IntArrayRef normalized,
                                              const OptionalTensor& weight,
                                              const OptionalTensor& bias, double eps) {
  const Tensor rows = rows_to_normalize(input, normalized, weight, bias);
  auto [result, mean, rstd] =
      at::native_layer_norm(rows, {rows.size(1)}, flat(weight), flat(bias), eps);
  return {with_elements(input, result), mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor>
layer_norm_backward(const Tensor& gradient, const Tensor& input, at::IntArrayRef normalized,
                    const Tensor& mean, const Tensor& rstd, const OptionalTensor& weight,
                    const OptionalTensor& bias, std::array<bool, 3> wanted) {
  const Tensor rows = rows_to_normalize(input, normalized, weight, bias);
  auto [of_input, of_weight, of_bias] =
      at::native_layer_norm_backward(rows_to_normalize(gradient, normalized, weight, bias), rows,
                                     {rows.size(1)}, mean, rstd, flat(weight), flat(bias), wanted);
  return {wanted[0] ? with_elements(input, of_input) : Tensor(),
          wanted[1] ? of_weight.view(normalized) : Tensor(),
          wanted[2] ? of_bias.view(normalized) : Tensor()};
}

// Of jagged tensors, whose sequences lie one after the other in `values` [rows, ...]. Sequence n
// has the rows from offsets[n] to offsets[n + 1].
const Tensor& the_offsets(at::TensorList offsets, const Tensor& values) {
  TORCH_CHECK_NOT_IMPLEMENTED(offsets.size() == 1,
                              "webgpu: only one dimension of a jagged tensor may be ragged");
  TORCH_CHECK(offsets[0].dim() == 1 && offsets[0].size(0) >= 1 &&
                  offsets[0].device() == values.device(),
              "the offsets of a jagged tensor are a vector on the device of its values");
  return offsets[0];
}

// A mask [a, b] as [a, b, 1, ...], for `like` of more dimensions.
Tensor expand_behind(const Tensor& mask, const Tensor& like) {
  std::vector<int64_t> sizes(like.dim(), 1);
  std::copy(mask.sizes().begin(), mask.sizes().end(), sizes.begin());
  return mask.view(sizes);
}

// [sequences, longest, ...]. Sequences that are longer are cut.
Tensor jagged_to_padded(const Tensor& values, at::TensorList offsets, at::IntArrayRef longest,
                        double padding) {
  const Tensor begins = the_offsets(offsets, values);
  TORCH_CHECK(longest.size() == 1, "there must be one largest length for each ragged dimension");
  std::vector<int64_t> sizes = values.sizes().vec();
  sizes[0] = longest[0];
  sizes.insert(sizes.begin(), begins.size(0) - 1);
  const Tensor padded = at::full(sizes, padding, values.options());
  if (values.size(0) == 0 || padded.numel() == 0) {
    return padded;
  }
  const Tensor rows =
      begins.slice(0, 0, -1).unsqueeze(1) + at::arange(longest[0], begins.options()).unsqueeze(0);
  const Tensor exists = rows.lt(begins.slice(0, 1).unsqueeze(1));
  const Tensor found = values.index_select(0, rows.clamp(0, values.size(0) - 1).view(-1));
  return at::where(expand_behind(exists, padded), found.view(sizes), padded);
}

// The rows of all sequences. Those behind the padded tensor's end are zero.
Tensor padded_to_jagged(const Tensor& padded, at::TensorList offsets,
                        std::optional<int64_t> total) {
  const Tensor begins = the_offsets(offsets, padded);
  TORCH_CHECK(padded.dim() >= 2 && padded.size(0) == begins.size(0) - 1,
              "a padded tensor has a row of sequences for each of ", begins.size(0) - 1,
              " sequences, but its sizes are ", padded.sizes());
  const int64_t count = total.has_value() ? *total : begins[-1].item<int64_t>();
  std::vector<int64_t> sizes = padded.sizes().slice(1).vec();
  sizes[0] = count;
  if (count == 0 || padded.numel() == 0) {
    return at::zeros(sizes, padded.options());
  }
  const Tensor rows = at::arange(count, begins.options());
  const Tensor sequence = at::searchsorted(begins.slice(0, 1).contiguous(), rows,
                                           /*out_int32=*/false, /*right=*/true)
                              .clamp(0, padded.size(0) - 1);
  const Tensor place = rows - begins.index_select(0, sequence);
  const Tensor exists = place.lt(padded.size(1)).logical_and(rows.lt(begins[-1]));
  const Tensor at = sequence * padded.size(1) + place.clamp(0, padded.size(1) - 1);
  const Tensor found = padded.flatten(0, 1).index_select(0, at);
  return at::where(expand_behind(exists, found), found, at::zeros({}, padded.options()));
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

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_jagged_to_padded_dense_forward", jagged_to_padded);
  m.impl("_nested_from_padded", from_padded);
  m.impl("_nested_tensor_from_mask", from_mask);
  m.impl("_nested_tensor_from_mask_left_aligned", is_left_aligned);
  m.impl("_padded_dense_to_jagged_forward", padded_to_jagged);
}

TW_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  m.impl("_fused_sdp_choice", sdp_choice);
  m.impl("_native_multi_head_attention", attention);
  m.impl("_transformer_encoder_layer_fwd", encoder_layer);
  m.impl("add.Tensor", add);
  m.impl("bmm", at::native::bmm_nested);
  m.impl("mul.Tensor", mul);
  m.impl("native_layer_norm", layer_norm);
  m.impl("native_layer_norm_backward", layer_norm_backward);
  m.impl("_nested_sum_backward", sum_backward);
  m.impl("sum.dim_IntList", sum);
  m.impl("to_padded_tensor", at::native::NestedTensor_to_padded_tensor_generic);
}

} // namespace
} // namespace torch_webgpu
