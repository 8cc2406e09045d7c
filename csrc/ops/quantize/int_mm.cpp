// _int_mm: the product of int8 matrices, in int32.
#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>

#include "backend/empty.h"
#include "backend/registration.h"
#include "backend/tensor.h"
#include "backend/torch_versions.h"
#include "ops/matmul/matmul_gemm.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

Tensor& int_mm_out(const Tensor& self, const Tensor& mat2, Tensor& result) {
  constexpr const char* op = "int_mm_out_cpu"; // errors are the CPU's
  check_int_mm_sizes(self, mat2);
  TORCH_CHECK(self.scalar_type() == at::kChar || self.scalar_type() == at::kByte, op,
              ": Expected self dtype to be int8 or uint8 but got ", self.dtype());
  TORCH_CHECK(mat2.scalar_type() == at::kChar, op,
              ": Expected mat2 dtype to be of type int8 but got ", mat2.dtype());
  TORCH_CHECK(result.scalar_type() == at::kInt, op,
              ": Expected result dtype to be of type kInt but got ", result.dtype());
  TORCH_CHECK(result.size(0) == self.size(0), op, ": Expected result.size(0) to be ", self.size(0),
              " but got ", result.size(0));
  TORCH_CHECK(result.size(1) == mat2.size(1), op, ": Expected result.size(1) to be ", mat2.size(1),
              " but got ", result.size(1));
  TORCH_CHECK(result.dim() == 2, op, ": Expected result to be of dimension 2 but got ",
              result.dim());
  TORCH_CHECK(result.is_contiguous(), op, ": Expected result to be contiguous.");
  if (result.numel() == 0) {
    return result;
  }
  if (self.scalar_type() != mat2.scalar_type()) { // kernels multiply matrices of one type
    return at::mm_out(result, self.to(at::kInt), mat2.to(at::kInt));
  }
  if (same_buffer(result, self) || same_buffer(result, mat2)) {
    Tensor product = empty_webgpu(result.sizes(), at::kInt, result.device());
    return result.copy_(int_mm_out(self, mat2, product));
  }
  Gemm problem;
  problem.m = self.size(0);
  problem.n = mat2.size(1);
  problem.k = self.size(1);
  problem.a = MatrixView::of(self);
  problem.b = MatrixView::of(mat2);
  problem.c = MatrixView::of(result);
  gemm(problem);
  return result;
}

Tensor int_mm(const Tensor& self, const Tensor& mat2) {
  Tensor result =
      empty_webgpu({self.dim() == 2 ? self.size(0) : 0, mat2.dim() == 2 ? mat2.size(1) : 0},
                   at::kInt, self.device());
  return int_mm_out(self, mat2, result);
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_int_mm", TORCH_FN(int_mm));
  m.impl("_int_mm.out", TORCH_FN(int_mm_out));
}

} // namespace
} // namespace torch_webgpu
