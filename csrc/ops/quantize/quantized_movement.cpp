// Quantized tensors under the key QuantizedPrivateUse1: operators that move, join and order
// elements. They work on the integers, which have the order of the values that they stand for.
#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/quantized/AffineQuantizer.h>
#include <ATen/ops/_make_per_tensor_quantized_tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/channel_shuffle.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/fill_native.h>
#include <ATen/ops/index.h>
#include <ATen/ops/max_pool1d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/max_pool3d.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/squeeze_native.h>
#include <c10/core/QScheme.h>

#include "backend/registration.h"
#include "ops/quantize/quantize.h"

namespace torch_webgpu {
namespace {

using at::IntArrayRef;
using at::Scalar;
using at::Tensor;

void check_per_tensor(const char* op, const Tensor& self) {
  TORCH_CHECK(
      self.qscheme() == at::kPerTensorAffine, op,
      " for quantized tensors is currently only supported for per tensor quantized tensors");
}

// Integers with the quantization parameters of `self`.
Tensor like(const Tensor& self, const Tensor& integers) {
  return at::_make_per_tensor_quantized_tensor(integers, self.q_scale(), self.q_zero_point());
}

// A number or tensor as integers, in the quantization of `self`.
Scalar integer_of(const Tensor& self, const Scalar& value) {
  const int64_t integer =
      AT_DISPATCH_QINT_TYPES(self.scalar_type(), "integer_of", [&]() -> int64_t {
        return at::native::quantize_val<scalar_t>(self.q_scale(), self.q_zero_point(),
                                                  value.toFloat())
            .val_;
      });
  return integer;
}

Tensor integers_for(const Tensor& self, const Tensor& values) {
  const bool same = values.is_quantized() && values.scalar_type() == self.scalar_type() &&
                    values.qscheme() == at::kPerTensorAffine &&
                    values.q_scale() == self.q_scale() &&
                    values.q_zero_point() == self.q_zero_point();
  if (same) {
    return integers_of(values);
  }
  const Tensor numbers = values.is_quantized() ? values.dequantize() : values.to(at::kFloat);
  return integers_of(at::quantize_per_tensor(numbers.to(self.device()), self.q_scale(),
                                             self.q_zero_point(), self.scalar_type()));
}

Tensor flip(const Tensor& self, IntArrayRef dims) {
  check_per_tensor("flip", self);
  return like(self, integers_of(self).flip(dims));
}

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  check_per_tensor("index_select", self);
  return like(self, integers_of(self).index_select(dim, index));
}

Tensor index(const Tensor& self, const c10::List<std::optional<Tensor>>& indices) {
  check_per_tensor("index", self);
  return like(self, at::index(integers_of(self), indices));
}

Tensor cat(const at::ITensorListRef& tensors, int64_t dim) {
  const auto parts = tensors.materialize();
  TORCH_CHECK(!parts.empty(), "torch.cat(): expected a non-empty list of Tensors");
  const Tensor& first = parts.front();
  std::vector<Tensor> integers;
  for (const Tensor& part : parts) {
    TORCH_CHECK(part.is_quantized() && part.qscheme() == at::kPerTensorAffine,
                "Only per-tensor quantization is supported in 'cat'!");
    TORCH_CHECK(part.scalar_type() == first.scalar_type(),
                "All dtypes must be the same in 'cat' of quantized tensors");
    integers.push_back(integers_for(first, part));
  }
  return like(first, at::cat(integers, dim));
}

Tensor unfold(const Tensor& self, int64_t dim, int64_t size, int64_t step) {
  const Tensor view = integers_of(self).unfold(dim, size, step);
  return self.as_strided(view.sizes(), view.strides(), view.storage_offset());
}

Tensor channel_shuffle(const Tensor& self, int64_t groups) {
  check_per_tensor("channel_shuffle", self);
  return like(self, at::channel_shuffle(integers_of(self), groups));
}

// The value 0 is the integer q_zero_point.
Tensor relu(const Tensor& self) {
  check_per_tensor("relu", self);
  return like(self, integers_of(self).clamp_min(self.q_zero_point()));
}

Tensor& relu_(Tensor& self) {
  check_per_tensor("relu_", self);
  integers_of(self).clamp_min_(self.q_zero_point());
  return self;
}

Tensor minimum(const Tensor& self) {
  check_per_tensor("min", self);
  return like(self, integers_of(self).min());
}

Tensor maximum(const Tensor& self) {
  check_per_tensor("max", self);
  return like(self, integers_of(self).max());
}

// Pooling has float kernels. They hold the integers of 8 bits exactly.
template <typename Pool>
Tensor max_pool(const Tensor& self, const Pool& pool) {
  check_per_tensor("max_pool", self);
  TORCH_CHECK(self.scalar_type() != at::kQInt32, "max_pool is not implemented for qint32");
  const Tensor integers = integers_of(self);
  return like(self, pool(integers.to(at::kFloat)).to(integers.scalar_type()));
}

Tensor max_pool1d(const Tensor& self, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool ceil_mode) {
  return max_pool(self, [&](const Tensor& x) {
    return at::max_pool1d(x, kernel, stride, padding, dilation, ceil_mode);
  });
}

Tensor max_pool2d(const Tensor& self, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool ceil_mode) {
  return max_pool(self, [&](const Tensor& x) {
    return at::max_pool2d(x, kernel, stride, padding, dilation, ceil_mode);
  });
}

Tensor max_pool3d(const Tensor& self, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool ceil_mode) {
  return max_pool(self, [&](const Tensor& x) {
    return at::max_pool3d(x, kernel, stride, padding, dilation, ceil_mode);
  });
}

bool equal(const Tensor& self, const Tensor& other) {
  if (!other.is_quantized() || self.qscheme() != other.qscheme() ||
      self.scalar_type() != other.scalar_type() || self.device() != other.device()) {
    return false;
  }
  if (self.qscheme() == at::kPerTensorAffine) {
    if (self.q_scale() != other.q_scale() || self.q_zero_point() != other.q_zero_point()) {
      return false;
    }
  } else if (self.q_per_channel_axis() != other.q_per_channel_axis() ||
             // On the host: scales are often float64.
             !at::equal(self.q_per_channel_scales().cpu(), other.q_per_channel_scales().cpu()) ||
             !at::equal(self.q_per_channel_zero_points().cpu(),
                        other.q_per_channel_zero_points().cpu())) {
    return false;
  }
  return at::equal(integers_of(self), integers_of(other));
}

Tensor& masked_fill_(Tensor& self, const Tensor& mask, const Scalar& value) {
  check_per_tensor("masked_fill_", self);
  integers_of(self).masked_fill_(mask, integer_of(self, value));
  return self;
}

Tensor& masked_fill_tensor_(Tensor& self, const Tensor& mask, const Tensor& value) {
  TORCH_CHECK(value.dim() == 0,
              "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
              value.dim(), " dimension(s).");
  return masked_fill_(self, mask, value.is_quantized() ? value.dequantize().item() : value.item());
}

Tensor& index_put_(Tensor& self, const c10::List<std::optional<Tensor>>& indices,
                   const Tensor& values, bool accumulate, bool /*unsafe*/) {
  TORCH_CHECK(!values.is_quantized(),
              "Value argument for quantized input_put should not be quantized");
  TORCH_CHECK(!accumulate,
              "index_put for quantized tensors is currently only supported for accumulate=False");
  check_per_tensor("index_put", self);
  integers_of(self).index_put_(indices, integers_for(self, values));
  return self;
}

Tensor squeeze(const Tensor& self) { return at::native::squeeze_quantized(self); }
Tensor squeeze_dim(const Tensor& self, int64_t dim) {
  return at::native::squeeze_quantized(self, dim);
}
Tensor squeeze_dims(const Tensor& self, IntArrayRef dims) {
  return at::native::squeeze_quantized(self, dims);
}
Tensor& fill_(Tensor& self, const Scalar& value) {
  return at::native::fill_quantized_(self, value);
}
Tensor& fill_tensor_(Tensor& self, const Tensor& value) {
  return at::native::fill_quantized_(self, value);
}

TW_LIBRARY_IMPL(aten, QuantizedPrivateUse1, m) {
  m.impl("_index_put_impl_", TORCH_FN(index_put_));
  m.impl("cat", TORCH_FN(cat));
  m.impl("channel_shuffle", TORCH_FN(channel_shuffle));
  m.impl("equal", TORCH_FN(equal));
  m.impl("fill_.Scalar", TORCH_FN(fill_));
  m.impl("fill_.Tensor", TORCH_FN(fill_tensor_));
  m.impl("flip", TORCH_FN(flip));
  m.impl("index.Tensor", TORCH_FN(index));
  m.impl("index_select", TORCH_FN(index_select));
  m.impl("masked_fill_.Scalar", TORCH_FN(masked_fill_));
  m.impl("masked_fill_.Tensor", TORCH_FN(masked_fill_tensor_));
  m.impl("max", TORCH_FN(maximum));
  m.impl("min", TORCH_FN(minimum));
  m.impl("quantized_max_pool1d", TORCH_FN(max_pool1d));
  m.impl("quantized_max_pool2d", TORCH_FN(max_pool2d));
  m.impl("quantized_max_pool3d", TORCH_FN(max_pool3d));
  m.impl("relu", TORCH_FN(relu));
  m.impl("relu_", TORCH_FN(relu_));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(at::native::set_storage_quantized_));
  m.impl("squeeze", TORCH_FN(squeeze));
  m.impl("squeeze.dim", TORCH_FN(squeeze_dim));
  m.impl("squeeze.dims", TORCH_FN(squeeze_dims));
  m.impl("unfold", TORCH_FN(unfold));
}

} // namespace
} // namespace torch_webgpu
