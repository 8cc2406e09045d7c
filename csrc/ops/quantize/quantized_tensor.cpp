// Quantized tensors under the key QuantizedPrivateUse1: making them, their parameters, views and
// copies. ATen's quantizers do most of it for any device.
#include <ATen/core/Tensor.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_copy_from_ops.h>
#include <ATen/ops/_empty_affine_quantized_native.h>
#include <ATen/ops/_empty_per_channel_affine_quantized_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/clone_native.h>
#include <ATen/ops/dequantize_native.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/empty_quantized_native.h>
#include <ATen/ops/q_per_channel_axis_native.h>
#include <ATen/ops/q_per_channel_scales_native.h>
#include <ATen/ops/q_per_channel_zero_points_native.h>
#include <ATen/ops/q_scale_native.h>
#include <ATen/ops/q_zero_point_native.h>
#include <ATen/ops/qscheme_native.h>
#include <ATen/ops/quantize_per_channel.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <ATen/ops/quantize_per_tensor_native.h>
#include <ATen/ops/unsqueeze_native.h>
#include <ATen/ops/view_native.h>

#include "backend/registration.h"
#include "backend/tensor.h"
#include "ops/quantize/quantize.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

Tensor int_repr(const Tensor& self) {
  return integers_of(self).clone(self.suggest_memory_format());
}

Tensor make_per_tensor(const Tensor& self, double scale, int64_t zero_point) {
  Tensor result = at::native::empty_affine_quantized(
      self.sizes(), c10::toQIntType(self.scalar_type()), std::nullopt, self.device(), std::nullopt,
      scale, zero_point, self.suggest_memory_format());
  integers_of(result).copy_(self);
  return result;
}

Tensor make_per_channel(const Tensor& self, const Tensor& scales, const Tensor& zero_points,
                        int64_t axis) {
  Tensor result = at::native::empty_per_channel_affine_quantized(
      self.sizes(), scales, zero_points, axis, c10::toQIntType(self.scalar_type()), std::nullopt,
      self.device(), std::nullopt, self.suggest_memory_format());
  integers_of(result).copy_(self);
  return result;
}

// Float numbers in the quantization of `like`.
Tensor quantized_as(const Tensor& numbers, const Tensor& like) {
  if (like.qscheme() == at::kPerTensorAffine) {
    return at::quantize_per_tensor(numbers, like.q_scale(), like.q_zero_point(),
                                   like.scalar_type());
  }
  return at::quantize_per_channel(numbers, like.q_per_channel_scales(),
                                  like.q_per_channel_zero_points(), like.q_per_channel_axis(),
                                  like.scalar_type());
}

// Integers move as integers. Only the type and the parameters must be the target's.
Tensor copy_from(const Tensor& self, const Tensor& dst, bool non_blocking) {
  TORCH_CHECK(dst.is_quantized(),
              "Copying from quantized Tensor to non-quantized Tensor is not allowed, please use "
              "dequantize to get a float Tensor from a quantized Tensor");
  if (!self.is_quantized()) {
    TORCH_CHECK(self.scalar_type() == at::kFloat,
                "Quantized copy only works with kFloat as source Tensor");
    const Tensor numbers = self.to(dst.device()).expand(dst.sizes());
    integers_of(dst).copy_(integers_of(quantized_as(numbers, dst)));
    return dst;
  }
  TORCH_CHECK(self.scalar_type() == dst.scalar_type(),
              "Quantized Copy only works with same scalar type");
  integers_of(dst).copy_(integers_of(self), non_blocking);
  return dst;
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_make_per_tensor_quantized_tensor", TORCH_FN(make_per_tensor));
  m.impl("_make_per_channel_quantized_tensor", TORCH_FN(make_per_channel));
  m.impl("dequantize.self", TORCH_FN(at::native::dequantize_cpu_or_cuda));
  m.impl("quantize_per_tensor.tensors", TORCH_FN(at::native::quantize_per_tensor_list_cpu));
}

// At load, because they may come first of all, and the memory that they take has the rest
// registered: backend/registration.h.
TORCH_LIBRARY_IMPL(aten, QuantizedPrivateUse1, m) {
  m.impl("_empty_affine_quantized", TORCH_FN(at::native::empty_affine_quantized));
  m.impl("_empty_per_channel_affine_quantized",
         TORCH_FN(at::native::empty_per_channel_affine_quantized));
  m.impl("empty_quantized", TORCH_FN(at::native::empty_quantized));
}

TW_LIBRARY_IMPL(aten, QuantizedPrivateUse1, m) {
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_qtensorimpl));
  m.impl("clone", TORCH_FN(at::native::quantized_clone));
  m.impl("dequantize.self", TORCH_FN(at::native::dequantize_quantized));
  m.impl("dequantize.tensors", TORCH_FN(at::native::dequantize_tensors_quantized_cpu));
  m.impl("empty_like", TORCH_FN(at::native::empty_like_quantized));
  m.impl("int_repr", TORCH_FN(int_repr));
  m.impl("q_per_channel_axis", TORCH_FN(at::native::q_per_channel_axis));
  m.impl("q_per_channel_scales", TORCH_FN(at::native::q_per_channel_scales));
  m.impl("q_per_channel_zero_points", TORCH_FN(at::native::q_per_channel_zero_points));
  m.impl("q_scale", TORCH_FN(at::native::q_scale_quant));
  m.impl("q_zero_point", TORCH_FN(at::native::q_zero_point_quant));
  m.impl("qscheme", TORCH_FN(at::native::qscheme_quant));
  m.impl("unsqueeze", TORCH_FN(at::native::unsqueeze_quantized));
  m.impl("view", TORCH_FN(at::native::view));
}

} // namespace

Tensor integers_of(const Tensor& quantized) {
  TORCH_CHECK_NOT_IMPLEMENTED(c10::elementSize(quantized.scalar_type()) != 1 ||
                                  quantized.scalar_type() == at::kQInt8 ||
                                  quantized.scalar_type() == at::kQUInt8,
                              "webgpu has no kernels for ", quantized.scalar_type());
  Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(quantized.storage()),
      c10::DispatchKeySet(is_webgpu(quantized) ? c10::DispatchKey::PrivateUse1
                                               : c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(c10::toUnderlying(quantized.scalar_type())));
  view.unsafeGetTensorImpl()->set_sizes_and_strides(quantized.sizes(), quantized.strides(),
                                                    quantized.storage_offset());
  return view;
}

} // namespace torch_webgpu
