// cdist and pdist with gradients.
#include <ATen/ExpandUtils.h>
#include <ATen/ops/_cdist_backward_ops.h>
#include <ATen/ops/_cdist_forward_ops.h>
#include <ATen/ops/_pdist_backward_ops.h>
#include <ATen/ops/_pdist_forward_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <array>
#include <cmath>

#include "backend/fallback.h"
#include "backend/registration.h"
#include "kernels/distance.h"
#include "kernels/distance_backward.h"
#include "launch/common.h"
#include "launch/dtypes.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

// The value of a kernel's constant `norm` for this power.
template <class Norm>
Norm norm_of(double power) {
  if (std::isinf(power)) {
    return Norm::infinity;
  }
  return power == 0.0   ? Norm::zero
         : power == 1.0 ? Norm::one
         : power == 2.0 ? Norm::two
         : power < 2.0  ? Norm::below_two
                        : Norm::above_two;
}

// Strides for a kernel's parameters; those of missing dimensions are 0.
std::array<uint32_t, 4> strides_of(const Tensor& tensor) {
  std::array<uint32_t, 4> strides{};
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    strides.at(d) = static_cast<uint32_t>(tensor.stride(d));
  }
  return strides;
}

// Distances of the rows of x1 (batch, row, element) and x2. For pdist x1 and x2 are the same
// tensor, and out is a vector with one distance per pair.
void forward(const char* op, const Tensor& x1, const Tensor& x2, double power, const Tensor& out) {
  const bool one_set = out.dim() == 1;
  const uint64_t pairs = static_cast<uint64_t>(x1.size(0) * x1.size(1) * x2.size(1));
  TORCH_CHECK_NOT_IMPLEMENTED(pairs < uint64_t{1} << 31, op, "(): more than 2^31 pairs");
  namespace kernel = kernels::distance;
  kernel::Launch launch(op);
  launch.out(out).x1(x1).x2(x2);
  launch.norm(norm_of<kernel::Norm>(power)).one_set(one_set);
  launch.run({.batches = static_cast<uint32_t>(x1.size(0)),
              .rows1 = static_cast<uint32_t>(x1.size(1)),
              .rows2 = static_cast<uint32_t>(x2.size(1)),
              .width = static_cast<uint32_t>(x1.size(2)),
              .power = static_cast<float>(power),
              .x1_strides = strides_of(x1),
              .x2_strides = strides_of(x2),
              .out_strides = strides_of(out)},
             launch.grid_of(pairs));
}

Tensor backward(const char* op, const Tensor& gradient, const Tensor& x1, const Tensor& x2,
                double power, const Tensor& distance) {
  const bool one_set = distance.dim() == 1;
  Tensor out = at::empty_like(x1, at::MemoryFormat::Contiguous);
  TORCH_CHECK_NOT_IMPLEMENTED(out.numel() < int64_t{1} << 31, op, "(): more than 2^31 elements");
  namespace kernel = kernels::distance_backward;
  kernel::Launch launch(op);
  launch.out(out).x1(x1).x2(x2).distance(distance).gradient(gradient);
  launch.norm(norm_of<kernel::Norm>(power)).one_set(one_set);
  launch.run({.batches = static_cast<uint32_t>(x1.size(0)),
              .rows1 = static_cast<uint32_t>(x1.size(1)),
              .rows2 = static_cast<uint32_t>(x2.size(1)),
              .width = static_cast<uint32_t>(x1.size(2)),
              .power = static_cast<float>(power),
              .x1_strides = strides_of(x1),
              .x2_strides = strides_of(x2),
              .out_strides = strides_of(out),
              .distance_strides = strides_of(distance),
              .gradient_strides = strides_of(gradient)},
             launch.grid_of(out.numel()));
  return out;
}

void check_power(const char* op, double p) {
  TORCH_CHECK(p >= 0, op, " only supports non-negative p values");
}

void check_set(const Tensor& self) {
  TORCH_CHECK(self.dim() == 2, "pdist only supports 2D tensors, got: ", self.dim(), "D");
}

void check_matrices(const Tensor& x1, const Tensor& x2) {
  for (const auto& [x, name] : {std::pair(&x1, "X1"), std::pair(&x2, "X2")}) {
    TORCH_CHECK(x->dim() >= 2, "cdist only supports at least 2D tensors, ", name,
                " got: ", x->dim(), "D");
  }
  TORCH_CHECK(x1.size(-1) == x2.size(-1),
              "X1 and X2 must have the same number of columns. X1: ", x1.size(-1),
              " X2: ", x2.size(-1));
}

// Both sets with their batch dimensions broadcast and flattened into one, and the broadcast shape
// of the batch.
struct Sets {
  Tensor x1;
  Tensor x2;
  at::DimVector batches;

  Sets(const Tensor& first, const Tensor& second)
      : batches(at::infer_size_dimvector(first.sizes().slice(0, first.dim() - 2),
                                         second.sizes().slice(0, second.dim() - 2))) {
    x1 = flat(first);
    x2 = flat(second);
  }

  Tensor flat(const Tensor& x) const {
    at::DimVector size(batches);
    size.append({x.size(-2), x.size(-1)});
    return x.expand(size).reshape({c10::multiply_integers(batches), x.size(-2), x.size(-1)});
  }

  at::DimVector shape(int64_t rows, int64_t columns) const {
    at::DimVector size(batches);
    size.append({rows, columns});
    return size;
  }
};

Tensor cdist_forward(const Tensor& x1, const Tensor& x2, double p,
                     std::optional<int64_t> compute_mode) {
  check_same_device("_cdist_forward", {{x1, "x1"}, {x2, "x2"}});
  for (const auto& [x, name] : {std::pair(&x1, "X1"), std::pair(&x2, "X2")}) {
    TORCH_CHECK(at::isFloatingType(x->scalar_type()), "cdist only supports floating-point dtypes, ",
                name, " got: ", x->scalar_type());
  }
  if (!is_native_float(x1)) {
    return call_cpu_fallback<at::_ops::_cdist_forward>::call(x1, x2, p, compute_mode);
  }
  check_dtype(x2, x1.scalar_type());
  check_matrices(x1, x2);
  check_power("cdist", p);
  const Sets sets(x1, x2);
  const auto size = sets.shape(x1.size(-2), x2.size(-2));
  if (c10::multiply_integers(size) == 0 || x1.size(-1) == 0) {
    return at::zeros(size, x1.options());
  }
  Tensor out = at::empty({sets.x1.size(0), x1.size(-2), x2.size(-2)}, x1.options());
  forward("_cdist_forward", sets.x1, sets.x2, p, out);
  return out.view(size);
}

Tensor cdist_backward(const Tensor& grad, const Tensor& x1, const Tensor& x2, double p,
                      const Tensor& cdist) {
  check_same_device("_cdist_backward", {{grad, "grad"}, {x1, "x1"}, {x2, "x2"}, {cdist, "cdist"}});
  if (!is_native_float(x1)) {
    return call_cpu_fallback<at::_ops::_cdist_backward>::call(grad, x1, x2, p, cdist);
  }
  check_matrices(x1, x2);
  check_power("cdist", p);
  const Sets sets(x1, x2);
  for (const Tensor& pairs : {grad, cdist}) {
    check_dtype(pairs, x1.scalar_type());
    TORCH_CHECK(pairs.dim() >= 2 && pairs.size(-2) == x1.size(-2) && pairs.size(-1) == x2.size(-2),
                "_cdist_backward(): expected a value for each pair of ", x1.size(-2), " and ",
                x2.size(-2), " rows, but got a tensor of sizes ", pairs.sizes());
  }
  const auto size = sets.shape(x1.size(-2), x1.size(-1));
  if (c10::multiply_integers(size) == 0 || x2.size(-2) == 0) {
    return at::zeros(size, x1.options());
  }
  return backward("_cdist_backward", sets.flat(grad), sets.x1, sets.x2, p, sets.flat(cdist))
      .view(size);
}

Tensor pdist_forward(const Tensor& self, double p) {
  if (!is_native_float(self)) {
    return call_cpu_fallback<at::_ops::_pdist_forward>::call(self, p);
  }
  check_set(self);
  check_power("pdist", p);
  const int64_t rows = self.size(0);
  if (rows <= 1) {
    return at::empty({0}, self.options());
  }
  Tensor out = at::zeros({rows * (rows - 1) / 2}, self.options());
  if (self.size(1) != 0) {
    const Tensor set = self.unsqueeze(0);
    forward("_pdist_forward", set, set, p, out);
  }
  return out;
}

Tensor pdist_backward(const Tensor& grad, const Tensor& self, double p, const Tensor& pdist) {
  check_same_device("_pdist_backward", {{grad, "grad"}, {self, "self"}, {pdist, "pdist"}});
  if (!is_native_float(self)) {
    return call_cpu_fallback<at::_ops::_pdist_backward>::call(grad, self, p, pdist);
  }
  check_set(self);
  check_power("pdist", p);
  const int64_t pairs = self.size(0) * (self.size(0) - 1) / 2;
  for (const Tensor& values : {grad, pdist}) {
    check_dtype(values, self.scalar_type());
    TORCH_CHECK(values.dim() == 1 && values.size(0) == pairs,
                "_pdist_backward(): expected a value ", "for each of ", pairs,
                " pairs, but got a tensor of sizes ", values.sizes());
  }
  if (self.numel() == 0 || self.size(0) == 1) {
    return at::zeros_like(self);
  }
  const Tensor set = self.unsqueeze(0);
  return backward("_pdist_backward", grad, set, set, p, pdist).squeeze(0);
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_cdist_forward", TORCH_FN(cdist_forward));
  m.impl("_cdist_backward", TORCH_FN(cdist_backward));
  m.impl("_pdist_forward", TORCH_FN(pdist_forward));
  m.impl("_pdist_backward", TORCH_FN(pdist_backward));
}

} // namespace
} // namespace torch_webgpu
