// Fourier transforms: complex to complex, real to complex and back, along any dimensions.
#include <ATen/Context.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_fft_c2c_ops.h>
#include <ATen/ops/_fft_c2r_ops.h>
#include <ATen/ops/_fft_r2c_ops.h>

#include <algorithm>
#include <cmath>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/registration.h"
#include "backend/torch_versions.h"
#include "launch/common.h"
#include "ops/fft/fft_launch.h"

namespace torch_webgpu {
namespace {

using at::DimVector;
using at::IntArrayRef;
using at::Tensor;

// The factor of a normalization mode (see at::native::fft_norm_mode) for `points` in all
// dimensions.
double norm_factor(int64_t normalization, int64_t points) {
  switch (normalization) {
  case 0:
    return 1.0;
  case 1:
    return 1.0 / std::sqrt(static_cast<double>(points));
  default:
    return 1.0 / static_cast<double>(points);
  }
}

DimVector wrapped(IntArrayRef dims, const Tensor& self) {
  at::dim_list_to_bitset(dims, self.dim()); // raises if a dimension occurs twice
  DimVector result(dims);
  at::maybe_wrap_dims(result, self.dim());
  return result;
}

// Sorts dimensions by their strides in `self`, the outermost first.
void sort_by_stride(int64_t* begin, int64_t* end, const Tensor& self) {
  std::stable_sort(begin, end,
                   [&](int64_t a, int64_t b) { return self.stride(a) > self.stride(b); });
}

// An output with the strides that meta functions assume, which are those of the CPU's MKL: the
// transformed dimensions are the innermost ones, in the order of `dims`. If PyTorch was built
// without MKL, only complex transforms have this layout.
Tensor empty_output(const Tensor& self, IntArrayRef sizes, IntArrayRef dims, at::ScalarType dtype) {
  if (dtype != self.scalar_type() && !at::globalContext().hasMKL()) {
    return empty_webgpu(sizes, self.options().dtype(dtype));
  }
  DimVector order;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) {
      order.push_back(d);
    }
  }
  sort_by_stride(order.begin(), order.end(), self);
  order.append(dims.begin(), dims.end());
  DimVector strides(self.dim());
  int64_t stride = 1;
  for (size_t k = order.size(); k-- > 0;) {
    strides[order[k]] = stride;
    stride *= std::max<int64_t>(sizes[order[k]], 1);
  }
  return empty_strided_webgpu(sizes, strides, self.options().dtype(dtype));
}

int64_t points_of(const Tensor& tensor, IntArrayRef dims) {
  int64_t points = 1;
  for (const int64_t d : dims) {
    TORCH_CHECK(tensor.size(d) > 0, "Invalid number of data points (0) specified");
    points *= tensor.size(d);
  }
  return points;
}

// Complex transforms of `from` to `to`, one dimension after the other. `from` and `to` may be the
// same tensor.
void transform_dims(const char* op, const Tensor& from, const Tensor& to, IntArrayRef dims,
                    bool forward, double scale) {
  for (size_t k = 0; k < dims.size(); ++k) {
    const int64_t d = dims[dims.size() - 1 - k];
    fft_along(op, {.points = to.size(d), .forward = forward, .scale = k == 0 ? scale : 1.0},
              k == 0 ? from : to, to, d);
  }
}

Tensor fft_c2c(const Tensor& self, IntArrayRef dim, int64_t normalization, bool forward) {
  TORCH_CHECK(self.is_complex(), "Only supports complex dtypes, but found: ", self.scalar_type());
  if (dim.empty()) {
    return self.clone();
  }
  if (self.scalar_type() != at::kComplexFloat) {
    return call_cpu_fallback<at::_ops::_fft_c2c>::call(self, dim, normalization, forward);
  }
  DimVector dims = wrapped(dim, self);
  sort_by_stride(dims.begin(), dims.end(), self);
  const double scale = norm_factor(normalization, points_of(self, dims));
  const Tensor out = empty_output(self, self.sizes(), dims, self.scalar_type());
  transform_dims("_fft_c2c", self, out, dims, forward, scale);
  return out;
}

Tensor fft_r2c(const Tensor& self, IntArrayRef dim, int64_t normalization, bool onesided) {
  TORCH_WEBGPU_CHECK_SINCE(2, 14, TYPE, self.is_floating_point(),
                           "Only supports floating-point dtypes, but found: ", self.scalar_type());
  if (self.scalar_type() != at::kFloat) {
    return call_cpu_fallback<at::_ops::_fft_r2c>::call(self, dim, normalization, onesided);
  }
  DimVector dims = wrapped(dim, self);
  const int64_t last = c10::maybe_wrap_dim(dim.back(), self.dim());
  sort_by_stride(dims.begin(), dims.end() - 1, self);
  DimVector sizes(self.sizes());
  if (onesided) {
    sizes[last] = sizes[last] / 2 + 1;
  }
  const double scale = norm_factor(normalization, points_of(self, dims));
  const Tensor out = empty_output(self, sizes, dims, at::kComplexFloat);
  fft_along("_fft_r2c",
            {.from = FftSide::kReal,
             .to = onesided ? FftSide::kHalf : FftSide::kComplex,
             .points = self.size(last),
             .scale = scale},
            self, out, last);
  dims.pop_back();
  transform_dims("_fft_r2c", out, out, dims, true, 1.0);
  return out;
}

Tensor fft_c2r(const Tensor& self, IntArrayRef dim, int64_t normalization, int64_t last_dim_size) {
  TORCH_CHECK(self.is_complex(), "Only supports complex dtypes, but found: ", self.scalar_type());
  if (self.scalar_type() != at::kComplexFloat) {
    return call_cpu_fallback<at::_ops::_fft_c2r>::call(self, dim, normalization, last_dim_size);
  }
  DimVector dims = wrapped(dim, self);
  const int64_t last = c10::maybe_wrap_dim(dim.back(), self.dim());
  TORCH_CHECK(last_dim_size >= 1 && self.size(last) >= last_dim_size / 2 + 1,
              "_fft_c2r(): ", self.size(last), " elements do not give ", last_dim_size, " points");
  dims.pop_back();
  const double scale = norm_factor(normalization, points_of(self, dims) * last_dim_size);
  const Tensor half = dims.empty() ? self : fft_c2c(self, dims, 0, false);
  DimVector sizes(self.sizes());
  sizes[last] = last_dim_size;
  const Tensor out = empty_output(half, sizes, last, at::kFloat);
  fft_along("_fft_c2r",
            {.from = FftSide::kHalf,
             .to = FftSide::kReal,
             .points = last_dim_size,
             .forward = false,
             .scale = scale},
            half, out, last);
  return out;
}

Tensor& fft_c2c_out(const Tensor& self, IntArrayRef dim, int64_t normalization, bool forward,
                    Tensor& out) {
  return write_out(fft_c2c(self, dim, normalization, forward), out);
}

Tensor& fft_r2c_out(const Tensor& self, IntArrayRef dim, int64_t normalization, bool onesided,
                    Tensor& out) {
  return write_out(fft_r2c(self, dim, normalization, onesided), out);
}

Tensor& fft_c2r_out(const Tensor& self, IntArrayRef dim, int64_t normalization,
                    int64_t last_dim_size, Tensor& out) {
  return write_out(fft_c2r(self, dim, normalization, last_dim_size), out);
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fft_c2c", TORCH_FN(fft_c2c));
  m.impl("_fft_c2c.out", TORCH_FN(fft_c2c_out));
  m.impl("_fft_r2c", TORCH_FN(fft_r2c));
  m.impl("_fft_r2c.out", TORCH_FN(fft_r2c_out));
  m.impl("_fft_c2r", TORCH_FN(fft_c2r));
  m.impl("_fft_c2r.out", TORCH_FN(fft_c2r_out));
}

} // namespace
} // namespace torch_webgpu
