#include "ops/linalg/linalg.h"

#include <string>

#include "backend/fallback.h"
#include "backend/tensor.h"
#include "launch/dtypes.h"
#include "ops/matmul/matmul_gemm.h"

namespace torch_webgpu {

using at::Tensor;

bool is_linalg_dtype(at::ScalarType type) {
  return type == at::kFloat || type == at::kComplexFloat;
}

int64_t linalg_block(at::ScalarType type) { return type == at::kComplexFloat ? 16 : 32; }

Tensor raw_values(const Tensor& tensor) { return tensor.is_conj() ? tensor.conj() : tensor; }

Tensor matrices(const Tensor& tensor) {
  const int64_t rows = tensor.size(-2);
  const int64_t columns = tensor.size(-1);
  const int64_t batch = c10::multiply_integers(tensor.sizes().slice(0, tensor.dim() - 2));
  const Tensor raw = raw_values(tensor);
  return raw.is_contiguous() ? raw.view({batch, rows, columns})
                             : raw.mT().view({batch, columns, rows}).mT();
}

Tensor matrices_like(const Tensor& tensor, const Tensor& batch_of) {
  auto size = batch_of.sizes().vec();
  size.end()[-2] = tensor.size(-2);
  size.end()[-1] = tensor.size(-1);
  const Tensor expanded = raw_values(tensor).expand(size);
  return matrices(expanded.mT().is_contiguous() ? expanded : expanded.contiguous());
}

Tensor submatrix(const Tensor& m, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  return m.narrow(-2, row, rows).narrow(-1, column, columns);
}

std::array<uint32_t, 4> matrix_strides(const Tensor& m) {
  return {static_cast<uint32_t>(m.stride(0)), static_cast<uint32_t>(m.stride(1)),
          static_cast<uint32_t>(m.stride(2)), 0};
}

void subtract_product(const Tensor& c, const Tensor& a_in, const Tensor& b_in) {
  // A dispatch that writes a buffer cannot read it through another binding.
  const Tensor a = same_buffer(c, a_in) ? a_in.clone() : a_in;
  const Tensor b = same_buffer(c, b_in) ? b_in.clone() : b_in;
  Gemm problem;
  problem.batch = c.size(0);
  problem.m = c.size(1);
  problem.n = c.size(2);
  problem.k = a.size(2);
  problem.a = MatrixView::of(a);
  problem.b = MatrixView::of(b);
  problem.c = MatrixView::of(c);
  problem.d = problem.c;
  problem.alpha = -1;
  gemm(problem);
}

HostCopies::HostCopies(const char* op, const Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  if (type == at::kDouble || type == at::kComplexDouble) { // the CPU's kernel raises for others
    note_fallback(op, type);
  }
}

Tensor HostCopies::in(const Tensor& tensor) const { return raw_values(tensor).cpu(); }

Tensor HostCopies::in_out(const Tensor& tensor) {
  const Tensor device = raw_values(tensor);
  written_.emplace_back(device, device.cpu());
  return written_.back().second;
}

void HostCopies::copy_back() const {
  for (const auto& [device, host] : written_) {
    device.copy_(host);
  }
}

} // namespace torch_webgpu
