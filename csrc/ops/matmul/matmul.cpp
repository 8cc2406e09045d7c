// Matrix products: what ATen calls mm, bmm, addmm, baddbmm, addmv, addbmm, dot, vdot. Everything
// else (linear, matmul, mv, outer, ...) reaches these through composites.
#include "backend/registration.h"
#include "ops/matmul/matmul_gemm.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/_efficientzerotensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/addmv_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/dot_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/vdot_ops.h>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/tensor.h"
#include "structured_ops.h"

namespace torch_webgpu {
namespace {

using at::Scalar;
using at::Tensor;

Tensor resolved(const Tensor& tensor) { return tensor.resolve_conj().resolve_neg(); }

bool same_view(const Tensor& a, const Tensor& b) {
  return a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() &&
         a.strides() == b.strides();
}

// Raises the error of the CPU's kernel, which names that kernel. The fallback would raise it only
// after it had been counted.
void check_not_bool(const Tensor& tensor, const char* name) {
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.scalar_type() != at::kBool, '"', name,
                              "\" not implemented for 'Bool'");
}

// out = alpha * a @ b + beta * self, for matrices or batches of them. A beta of 0 ignores what self
// holds, an alpha of 0 what a and b hold.
void multiply(const Tensor& out, const Tensor& a_in, const Tensor& b_in, const Tensor& self_in = {},
              const Scalar& beta = 0, const Scalar& alpha = 1) {
  if (out.numel() == 0) {
    return;
  }
  at::assert_no_internal_overlap(out);
  const Tensor a = resolved(a_in);
  const Tensor b = resolved(b_in);
  Tensor self;
  if (self_in.defined() && !beta.equal(0)) {
    self = resolved(self_in).expand(out.sizes());
  }
  const bool self_aliases = self.defined() && same_buffer(self, out) && !same_view(self, out);
  if (same_buffer(out, a) || same_buffer(out, b) || self_aliases || out.is_conj() || out.is_neg()) {
    const Tensor result = empty_webgpu(out.sizes(), out.scalar_type(), out.device());
    multiply(result, a, b, self, beta, alpha);
    out.copy_(result);
    return;
  }
  Gemm problem;
  problem.is_matmul = true;
  problem.batch = out.dim() == 3 ? out.size(0) : 1;
  problem.m = out.size(-2);
  problem.n = out.size(-1);
  problem.k = alpha.equal(0) ? 0 : a.size(-1);
  problem.a = MatrixView::of(a);
  problem.b = MatrixView::of(b);
  problem.c = MatrixView::of(out);
  problem.alpha = alpha;
  if (self.defined()) {
    problem.d = MatrixView::of(self);
    problem.beta = beta;
  }
  gemm(problem);
}

const char* type_name(const Tensor& tensor) { return at::toString(tensor.scalar_type()); }

Tensor& addbmm_out(const Tensor& self, const Tensor& batch1, const Tensor& batch2,
                   const Scalar& beta, const Scalar& alpha, Tensor& result) {
  TORCH_CHECK(batch1.dim() == 3, "batch1 must be a 3D tensor");
  TORCH_CHECK(batch2.dim() == 3, "batch2 must be a 3D tensor");
  TORCH_CHECK(batch1.size(0) == batch2.size(0),
              "batch1 and batch2 must have same number of batches, got ", batch1.size(0), " and ",
              batch2.size(0));
  TORCH_CHECK(batch1.size(2) == batch2.size(1), "Incompatible matrix sizes for bmm (",
              batch1.size(1), "x", batch1.size(2), " and ", batch2.size(1), "x", batch2.size(2),
              ")");
  const int64_t k = batch1.size(0) * batch1.size(2);
  // The sum over the batch is one product whose inner dimension runs over the batch too.
  at::addmm_out(result, *at::expand_size(self, {batch1.size(1), batch2.size(2)}, "addbmm"),
                batch1.transpose(0, 1).reshape({batch1.size(1), k}),
                batch2.reshape({k, batch2.size(2)}), beta, alpha);
  return result;
}

Tensor addbmm(const Tensor& self, const Tensor& batch1, const Tensor& batch2, const Scalar& beta,
              const Scalar& alpha) {
  Tensor result = empty_webgpu({0}, self.scalar_type(), self.device());
  return addbmm_out(self, batch1, batch2, beta, alpha, result);
}

Tensor& addbmm_(Tensor& self, const Tensor& batch1, const Tensor& batch2, const Scalar& beta,
                const Scalar& alpha) {
  return addbmm_out(self, batch1, batch2, beta, alpha, self);
}

void check_dot(const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.dim() == 1 && b.dim() == 1, "1D tensors expected, but got ", a.dim(), "D and ",
              b.dim(), "D tensors");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(),
              "dot : expected both vectors to have same dtype, but found ", type_name(a), " and ",
              type_name(b));
  TORCH_CHECK(a.numel() == b.numel(), "inconsistent tensor size, expected tensor [", a.numel(),
              "] and src [", b.numel(), "] to have the same number of elements, but got ",
              a.numel(), " and ", b.numel(), " elements respectively");
  TORCH_CHECK(b.device() == a.device(),
              "Expected all tensors to be on the same device, but found at least two devices, ",
              a.device(), " and ", b.device(), "!");
}

Tensor dot_product(const Tensor& a, const Tensor& b) {
  Tensor result = empty_webgpu({}, a.scalar_type(), a.device());
  multiply(result.view({1, 1}), a.unsqueeze(0), b.unsqueeze(1));
  return result;
}

// ATen leaves ZeroTensors to these two functions: forward AD passes them for what has no tangent.
bool is_known_zero(const Tensor& self, const Tensor& other) {
  return self._is_zerotensor() || other._is_zerotensor();
}

Tensor dot(const Tensor& self, const Tensor& other) {
  check_dot(self, other);
  check_not_bool(self, "dot");
  if (is_known_zero(self, other)) {
    return at::_efficientzerotensor({}, self.options());
  }
  if (!is_gemm_dtype(self.scalar_type())) {
    return call_cpu_fallback<at::_ops::dot>::call(self, other);
  }
  if (self.is_conj() && other.is_conj()) { // lazy, as on the CPU and CUDA
    return dot_product(self.conj(), other.conj()).conj();
  }
  return dot_product(self, other);
}

Tensor vdot(const Tensor& self, const Tensor& other) {
  if (!self.is_complex()) {
    return dot(self, other);
  }
  check_dot(self, other);
  if (is_known_zero(self, other)) {
    return at::_efficientzerotensor({}, self.options());
  }
  if (!is_gemm_dtype(self.scalar_type())) {
    return call_cpu_fallback<at::_ops::vdot>::call(self, other);
  }
  if (!self.is_conj() && other.is_conj()) { // lazy, as on the CPU and CUDA
    return dot_product(self, other.conj()).conj();
  }
  return dot_product(self.conj(), other);
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("addbmm", addbmm);
  m.impl("addbmm_", addbmm_);
  m.impl("addbmm.out", addbmm_out);
  m.impl("dot", dot);
  m.impl("vdot", vdot);
}

} // namespace

void structured_mm_out::impl(const Tensor& self, const Tensor& mat2, const Tensor& out) {
  TORCH_CHECK(self.scalar_type() == mat2.scalar_type(),
              "expected m1 and m2 to have the same dtype, but got: ", self.dtype(),
              " != ", mat2.dtype());
  check_not_bool(self, "addmm_impl_cpu_");
  if (!is_gemm_dtype(self.scalar_type())) {
    call_cpu_fallback<at::_ops::mm_out>::call(self, mat2, const_cast<Tensor&>(out));
    return;
  }
  multiply(out, self, mat2);
}

void structured_addmm_out::impl(const Tensor& self, const Tensor& mat1, const Tensor& mat2,
                                const Scalar& beta, const Scalar& alpha, const Tensor& out) {
  check_not_bool(mat1, "addmm_impl_cpu_");
  if (!is_gemm_dtype(mat1.scalar_type())) {
    call_cpu_fallback<at::_ops::addmm_out>::call(self, mat1, mat2, beta, alpha,
                                                 const_cast<Tensor&>(out));
    return;
  }
  multiply(out, mat1, mat2, self, beta, alpha);
}

void structured_bmm_out::impl(const Tensor& self, const Tensor& mat2, const Tensor& out) {
  TORCH_CHECK(self.scalar_type() == mat2.scalar_type(), "expected scalar type ", type_name(self),
              " but found ", type_name(mat2));
  check_not_bool(self, "bmm");
  if (!is_gemm_dtype(self.scalar_type())) {
    call_cpu_fallback<at::_ops::bmm_out>::call(self, mat2, const_cast<Tensor&>(out));
    return;
  }
  multiply(out, self, mat2);
}

void structured_baddbmm_out::impl(const Tensor& self, const Tensor& batch1, const Tensor& batch2,
                                  const Scalar& beta, const Scalar& alpha, const Tensor& out) {
  check_not_bool(batch1, "baddbmm");
  if (!is_gemm_dtype(batch1.scalar_type())) {
    call_cpu_fallback<at::_ops::baddbmm_out>::call(self, batch1, batch2, beta, alpha,
                                                   const_cast<Tensor&>(out));
    return;
  }
  multiply(out, batch1, batch2, self, beta, alpha);
}

void structured_addmv_out::impl(const Tensor& self, const Tensor& mat, const Tensor& vec,
                                const Scalar& beta, const Scalar& alpha, const Tensor& out) {
  check_not_bool(mat, "addmv_impl_cpu");
  if (!is_gemm_dtype(mat.scalar_type())) {
    call_cpu_fallback<at::_ops::addmv_out>::call(self, mat, vec, beta, alpha,
                                                 const_cast<Tensor&>(out));
    return;
  }
  const Tensor matrix = self.expand(out.sizes()).unsqueeze(1);
  multiply(out.unsqueeze(1), mat, vec.unsqueeze(1), matrix, beta, alpha);
}

} // namespace torch_webgpu
