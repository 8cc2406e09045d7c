// _scaled_mm and _scaled_mm_v2: products of float8 matrices, each with one scale or with a scale
// for each row of the first and each column of the second. WGSL has no such type: the matrices are
// converted, and the product is one of float32.
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <optional>

#include "backend/empty.h"
#include "backend/no_autocast.h"
#include "backend/registration.h"
#include "backend/torch_versions.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using MaybeTensor = std::optional<Tensor>;
using MaybeType = std::optional<at::ScalarType>;

// As at::blas::ScalingType numbers them; there are also those of blocks.
enum Recipe : int64_t { kTensorWise = 0, kRowWise = 1 };

struct Factor {
  const Tensor& matrix;
  const Tensor& scale;
};

bool has_float_scales(const Factor& a, const Factor& b) {
  const auto fits = [](const Factor& f) {
    return at::isFloat8Type(f.matrix.scalar_type()) && f.scale.scalar_type() == at::kFloat;
  };
  return fits(a) && fits(b);
}

bool is_tensor_wise(const Factor& a, const Factor& b) {
  return has_float_scales(a, b) && a.scale.numel() == 1 && b.scale.numel() == 1;
}

bool is_row_wise(const Factor& a, const Factor& b) {
  return has_float_scales(a, b) && a.scale.sizes().equals({a.matrix.size(0), 1}) &&
         b.scale.sizes().equals({1, b.matrix.size(1)}) && a.scale.is_contiguous() &&
         b.scale.is_contiguous();
}

// The errors are the CPU's, which are CUDA's but for scalings that neither this nor the CPU has.
void check_scaling(bool is_known, const Factor& a, const Factor& b) {
  TORCH_CHECK_VALUE(
      is_known,
      "Invalid scaling configuration.\n"
      "- For TensorWise scaling, a and b should be float8, scales should be float and "
      "singletons.\n"
      "- For RowWise scaling, a and b should be float8, scales should be float, scale_a should "
      "be (",
      a.matrix.size(0), ", 1) and scale_b should be (1, ", b.matrix.size(1),
      "), and both should be contiguous.\nGot mat_a.dtype()=", a.matrix.scalar_type(),
      ", scale_a.dtype()=", a.scale.scalar_type(), ", scale_a.size()=", a.scale.sizes(),
      ", scale_a.stride()=", a.scale.strides(), ", mat_b.dtype()=", b.matrix.scalar_type(),
      ", scale_b.dtype()=", b.scale.scalar_type(), ", scale_b.size()=", b.scale.sizes(),
      " and scale_b.stride()=", b.scale.strides());
}

Tensor& multiply(const Factor& a, const Factor& b, const MaybeTensor& bias,
                 const MaybeTensor& scale_result, Tensor& out) {
  at::native::resize_output(out, {a.matrix.size(0), b.matrix.size(1)});
  const NoAutocast no_autocast; // sums of halves would overflow before they are scaled
  // Sums of such products are nearly exact before they are scaled.
  Tensor product = at::mm(a.matrix.to(at::kFloat), b.matrix.to(at::kFloat));
  product.mul_(a.scale.reshape({-1, 1})).mul_(b.scale.reshape({1, -1}));
  if (bias) {
    product.add_(*bias);
  }
  if (scale_result && at::isFloat8Type(out.scalar_type())) {
    product.mul_(scale_result->reshape({})); // as CUDA's libraries; the CPU divides
  }
  return out.copy_(product);
}

Tensor& scaled_mm_out(const Tensor& self, const Tensor& mat2, const Tensor& scale_a,
                      const Tensor& scale_b, const MaybeTensor& bias,
                      const MaybeTensor& scale_result, MaybeType out_dtype, bool, Tensor& out) {
  TORCH_CHECK(self.dim() == 2, "mat1 must be a matrix");
  TORCH_CHECK(mat2.dim() == 2, "mat2 must be a matrix");
  TORCH_CHECK(self.size(1) == mat2.size(0), "mat_a and mat_b shapes cannot be multiplied (",
              self.size(0), "x", self.size(1), " and ", mat2.size(0), "x", mat2.size(1), ")");
  const Factor a{self, scale_a}, b{mat2, scale_b};
  check_scaling(is_tensor_wise(a, b) || is_row_wise(a, b), a, b);
  TORCH_CHECK(!scale_result ||
                  (scale_result->numel() == 1 && scale_result->scalar_type() == at::kFloat),
              "scale_result must be a float scalar");
  TORCH_CHECK(!bias || bias->numel() == mat2.size(1), "Bias must be size ", mat2.size(1),
              " but got ", bias->numel());
  TORCH_CHECK_VALUE(!out_dtype || *out_dtype == out.scalar_type(),
                    "out_dtype must match output matrix type");
  return multiply(a, b, bias, scale_result, out);
}

Tensor scaled_mm(const Tensor& self, const Tensor& mat2, const Tensor& scale_a,
                 const Tensor& scale_b, const MaybeTensor& bias, const MaybeTensor& scale_result,
                 MaybeType out_dtype, bool use_fast_accum) {
  Tensor out = empty_webgpu({0}, out_dtype.value_or(self.scalar_type()), self.device());
  return scaled_mm_out(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum,
                       out);
}

void check_contraction(const Tensor& self, const Tensor& mat2, at::IntArrayRef dims) {
  if (dims.empty()) {
    TORCH_CHECK_VALUE(self.size(1) == mat2.size(0), "mat_a and mat_b shapes cannot be multiplied (",
                      self.size(0), "x", self.size(1), " and ", mat2.size(0), "x", mat2.size(1),
                      ")");
    return;
  }
  TORCH_CHECK_VALUE(dims.size() == 2, "contraction_dim must have exactly 2 elements");
  TORCH_CHECK_VALUE(self.size(dims[0]) == mat2.size(dims[1]),
                    "mat_a and mat_b shapes cannot be multiplied (", self.size(0), "x",
                    self.size(1), " and ", mat2.size(0), "x", mat2.size(1),
                    ") with contraction dims mat_a: ", dims[0], ", mat_b: ", dims[1]);
  const bool is_product = (dims[0] == 1 || dims[0] == -1) && (dims[1] == 0 || dims[1] == -2);
  TORCH_CHECK_VALUE(is_product, "torch._scaled_mm_v2 only supports contraction_dim=(1, 0)");
}

Tensor& scaled_mm_v2_out(const Tensor& self, const Tensor& mat2, ScaleList scale_a,
                         at::IntArrayRef recipe_a, at::IntArrayRef swizzle_a, ScaleList scale_b,
                         at::IntArrayRef recipe_b, at::IntArrayRef swizzle_b,
                         const MaybeTensor& bias, MaybeType out_dtype,
                         at::IntArrayRef contraction_dim, bool, Tensor& out) {
  TORCH_CHECK_VALUE(self.dim() == 2, "mat_a must be a matrix");
  TORCH_CHECK_VALUE(mat2.dim() == 2, "mat_b must be a matrix");
  check_contraction(self, mat2, contraction_dim);
  TORCH_CHECK_VALUE(!scale_a.empty() && !scale_b.empty(), "scales must not be empty");
  const Factor a{self, scale_a.front()}, b{mat2, scale_b.front()};
  const bool is_single =
      scale_a.size() == 1 && scale_b.size() == 1 && recipe_a.size() == 1 && recipe_b.size() == 1;
  const bool is_rows = is_single && recipe_a[0] == kRowWise && recipe_b[0] == kRowWise;
  const bool is_whole = is_single && recipe_a[0] == kTensorWise && recipe_b[0] == kTensorWise;
  check_scaling((is_rows || is_whole) && has_float_scales(a, b), a, b);
  // Scales in another order, which those of CUDA's blocks may have: 0 is the plain one.
  const auto is_plain = [](at::IntArrayRef swizzle) {
    return std::all_of(swizzle.begin(), swizzle.end(), [](int64_t order) { return order == 0; });
  };
  TORCH_CHECK_VALUE(is_plain(swizzle_a) && is_plain(swizzle_b), "webgpu does not support swizzle.");
  if (is_whole) {
    TORCH_CHECK_VALUE(a.scale.numel() == 1, "scale_a must have 1 Float element");
    TORCH_CHECK_VALUE(b.scale.numel() == 1, "scale_b must have 1 Float element");
  } else {
    TORCH_CHECK_VALUE(a.scale.size(0) == self.size(0) && a.scale.size(1) == 1,
                      "scale_a must have shape [", self.size(0), ", 1], got [", a.scale.sizes(),
                      "]");
    TORCH_CHECK_VALUE(b.scale.numel() == mat2.size(1), "scale_b must have ", mat2.size(1),
                      " Float elements, got ", b.scale.numel());
    TORCH_CHECK_VALUE(b.scale.stride(1) == 1, "expected scale_b.stride(1) to be 1, but got ",
                      b.scale.stride(1));
  }
  TORCH_CHECK_VALUE(!bias || bias->numel() == mat2.size(1), "Bias must be size ", mat2.size(1),
                    " but got ", bias->numel());
  TORCH_CHECK_VALUE(!out_dtype || *out_dtype == out.scalar_type(),
                    "out_dtype must match output matrix type");
  return multiply(a, b, bias, std::nullopt, out);
}

Tensor scaled_mm_v2(const Tensor& self, const Tensor& mat2, ScaleList scale_a,
                    at::IntArrayRef recipe_a, at::IntArrayRef swizzle_a, ScaleList scale_b,
                    at::IntArrayRef recipe_b, at::IntArrayRef swizzle_b, const MaybeTensor& bias,
                    MaybeType out_dtype, at::IntArrayRef contraction_dim, bool use_fast_accum) {
  Tensor out = empty_webgpu({0}, out_dtype.value_or(self.scalar_type()), self.device());
  return scaled_mm_v2_out(self, mat2, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b,
                          bias, out_dtype, contraction_dim, use_fast_accum, out);
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_scaled_mm", TORCH_FN(scaled_mm));
  m.impl("_scaled_mm.out", TORCH_FN(scaled_mm_out));
  m.impl("_scaled_mm_v2", TORCH_FN(scaled_mm_v2));
  m.impl("_scaled_mm_v2.out", TORCH_FN(scaled_mm_v2_out));
}

} // namespace
} // namespace torch_webgpu
