// Fourier transforms along one dimension, as passes of fft.wgsl.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_webgpu {

/// What one side of a transform holds.
enum class FftSide : uint8_t {
  kComplex, // complex64
  kReal,    // float32
  kHalf,    // complex64, the first points / 2 + 1 of a sequence with conjugate symmetry
};

struct FftTransform {
  FftSide from = FftSide::kComplex;
  FftSide to = FftSide::kComplex;
  int64_t points = 0;
  bool forward = true;
  double scale = 1.0;
};

/// y = scale * the transform of x along `dim`. Any strides are allowed. y may be x, but must not
/// overlap it in any other way.
void fft_along(const char* op, const FftTransform& transform, const at::Tensor& x,
               const at::Tensor& y, int64_t dim);

} // namespace torch_webgpu
