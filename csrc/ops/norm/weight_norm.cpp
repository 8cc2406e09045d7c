// Weight normalization over the first or the last dimension, w = v * g / |v|. torch._weight_norm
// calls these operators; second derivatives use other operators.
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <numeric>
#include <tuple>
#include <vector>

#include "backend/registration.h"
#include "launch/common.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using TwoTensors = std::tuple<Tensor, Tensor>;

// The dimensions that a norm runs over: all but `dim`.
std::vector<int64_t> other_dims(const Tensor& v, int64_t dim) {
  std::vector<int64_t> dims(v.dim());
  std::iota(dims.begin(), dims.end(), 0);
  dims.erase(dims.begin() + dim);
  return dims;
}

void check_dim(const Tensor& v, int64_t dim) {
  TORCH_CHECK(v.dim() > 0 && (dim == 0 || dim == v.dim() - 1),
              "fused kernels can only be applied for first or last dim");
}

TwoTensors weight_norm(const Tensor& v, const Tensor& g, int64_t dim) {
  check_same_device("_weight_norm_interface", {{v, "v"}, {g, "g"}});
  check_dim(v, dim);
  const at::ScalarType type = at::toOpMathType(g.scalar_type()); // of the norms too
  const auto dims = other_dims(v, dim);
  const Tensor norm = dims.empty() ? v.to(type).abs()
                                   : at::linalg_vector_norm(v.to(type), 2, dims, /*keepdim=*/true);
  const Tensor w = v.to(type).mul(g.to(type).view(norm.sizes()).div(norm));
  return {w.to(v.scalar_type()), norm.view(g.sizes())};
}

TwoTensors weight_norm_backward(const Tensor& grad_w, const Tensor& v, const Tensor& g,
                                const Tensor& norms, int64_t dim) {
  check_same_device("_weight_norm_interface_backward",
                    {{grad_w, "grad_w"}, {v, "saved_v"}, {g, "saved_g"}, {norms, "saved_norms"}});
  TORCH_CHECK(v.is_contiguous(), "saved_v must be contiguous");
  TORCH_CHECK(g.is_contiguous(), "saved_g must be contiguous");
  TORCH_CHECK(norms.is_contiguous(), "saved_norms must be contiguous");
  check_dim(v, dim);
  const at::ScalarType type = norms.scalar_type();
  const auto dims = other_dims(v, dim);
  std::vector<int64_t> kept(v.dim(), 1);
  kept[dim] = v.size(dim);
  const Tensor x = v.to(type);
  const Tensor gradient = grad_w.to(type);
  const Tensor norm = norms.view(kept);
  Tensor along = gradient * x; // and, divided by the norm, the gradient of g
  if (!dims.empty()) {
    along = along.sum(dims, /*keepdim=*/true);
  }
  along = along / norm;
  const Tensor grad_v = (gradient - x * (along / norm)) * (g.to(type).view(kept) / norm);
  return {grad_v.to(v.scalar_type()), along.to(g.scalar_type()).view(g.sizes())};
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_weight_norm_interface", weight_norm);
  m.impl("_weight_norm_interface_backward", weight_norm_backward);
}

} // namespace
} // namespace torch_webgpu
