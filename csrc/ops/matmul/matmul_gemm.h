// The entry point of the matrix product kernels, for matrix ops and convolutions.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <cstdint>

#include "ops/matmul/gemm_conv.h"

namespace torch_webgpu {

/// A batch of matrices inside a tensor's storage; strides in elements. Stride 0 repeats.
struct MatrixView {
  const at::Tensor* tensor = nullptr; // null: absent
  int64_t offset = 0;                 // from the start of the storage
  int64_t batch = 0, row = 0, column = 0;
  // The distance from the first to the last element, if the strides do not give it (convolutions).
  int64_t reach = -1;

  static MatrixView of(const at::Tensor& tensor); // of a 2-D or 3-D tensor
  MatrixView transposed() const { return {tensor, offset, batch, column, row, reach}; }
};

/// C = alpha * A @ B + beta * D. All four have one dtype that is_gemm_dtype() accepts (C may
/// instead have the type that sums of it have: int32 for narrower integers); C overlaps neither A
/// nor B, and is D or does not overlap it. Lazy conjugate bits are ignored.
struct Gemm {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  MatrixView a, b, c, d;
  c10::Scalar alpha = 1;
  c10::Scalar beta = 1;
  // The addresses of elements that strides alone do not describe.
  ConvForm conv = ConvForm::kNone;
  bool conv_strided = false;
  ConvParams conv_params{};
};

bool is_gemm_dtype(at::ScalarType type);
void gemm(const Gemm& problem);

} // namespace torch_webgpu
