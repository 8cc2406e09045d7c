// Counting by index: bincount and histc.
#include <ATen/native/Resize.h>
#include <ATen/ops/bincount_ops.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/registration.h"
#include "launch/common.h"

namespace torch_webgpu {
namespace {

using at::Scalar;
using at::Tensor;

Tensor bincount(const Tensor& self, const std::optional<Tensor>& weights, int64_t minlength) {
  TORCH_CHECK(minlength >= 0, "minlength should be >= 0");
  TORCH_CHECK_NOT_IMPLEMENTED(at::isIntegralType(self.scalar_type(), /*includeBool=*/false),
                              "\"bincount_cpu\" not implemented for '", self.scalar_type(), "'");
  const bool weighted = weights && weights->defined();
  if (weighted && weights->scalar_type() != at::kFloat) { // other weights are summed as doubles
    return call_cpu_fallback<at::_ops::bincount>::call(self, weights, minlength);
  }
  if (self.dim() == 1 && self.numel() == 0) {
    return at::zeros({minlength}, self.options().dtype(at::kLong));
  }
  TORCH_CHECK(self.dim() == 1 && self.min().item<int64_t>() >= 0,
              "bincount only supports 1-d non-negative integral inputs.");
  TORCH_CHECK(!weighted || (weights->dim() == 1 && weights->size(0) == self.size(0)),
              "weights should be 1-d and have the same length as input");
  const auto largest = self.max().item<int64_t>();
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  TORCH_CHECK(largest < kLargest, "maximum value of input overflowed, it should be < ", kLargest,
              " but got ", largest);
  const int64_t bins = std::max(largest + 1, minlength);
  const auto options = self.options().dtype(weighted ? at::kFloat : at::kLong);
  const Tensor amounts = weighted ? *weights : at::ones({1}, options).expand(self.sizes());
  return at::zeros({bins}, options).index_add_(0, self.to(at::kLong), amounts);
}

// Counts the elements in bins between bounds of type Bound. The bins of integers are computed in
// exact integer arithmetic, as on CUDA but not on the CPU.
template <class Bound>
Tensor& count_between(const Tensor& self, int64_t bins, const Scalar& min, const Scalar& max,
                      Tensor& out) {
  Bound low = min.to<Bound>();
  Bound high = max.to<Bound>();
  if (low == high && self.numel() > 0) {
    low = self.min().item().to<Bound>();
    high = self.max().item().to<Bound>();
  }
  if (low == high) {
    low -= 1;
    high += 1;
  }
  TORCH_CHECK(std::isfinite(static_cast<double>(low)) && std::isfinite(static_cast<double>(high)),
              "torch.histc: range of [", low, ", ", high, "] is not finite");
  TORCH_CHECK(low < high, "torch.histc: max must be larger than min");
  Tensor items = self.reshape({-1});
  if constexpr (std::is_integral_v<Bound>) {
    items = items.to(at::kLong);
  }
  const Tensor inside = items.ge(low).logical_and_(items.le(high));
  Tensor position = items.sub(low).mul_(Scalar(static_cast<Bound>(bins)));
  if constexpr (std::is_integral_v<Bound>) {
    position.div_(high - low, "floor");
  } else {
    position.div_(high - low);
  }
  const Tensor bin =
      position.masked_fill_(inside.logical_not(), 0).to(at::kLong).clamp_max_(bins - 1);
  const Tensor counts = at::zeros({bins}, out.options().dtype(at::kInt));
  out.copy_(counts.index_add(0, bin, inside.to(at::kInt)));
  return out;
}

Tensor& histc_out(const Tensor& self, int64_t bins, const Scalar& min, const Scalar& max,
                  Tensor& out) {
  check_same_device("histc", {{self, "self"}, {out, "out"}});
  TORCH_CHECK(bins > 0, "torch.histc(): bins must be > 0");
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "torch.histogram: input tensor and hist tensor should have the same dtype, but got "
              "input ",
              c10::scalarTypeToTypeMeta(self.scalar_type()), " and hist ",
              c10::scalarTypeToTypeMeta(out.scalar_type()));
  TORCH_CHECK_NOT_IMPLEMENTED(!self.is_complex() && self.scalar_type() != at::kBool,
                              "\"histc\" not implemented for '", self.scalar_type(), "'");
  at::native::resize_output(out, {bins});
  return at::isIntegralType(self.scalar_type(), /*includeBool=*/false)
             ? count_between<int64_t>(self, bins, min, max, out)
             : count_between<double>(self, bins, min, max, out);
}

Tensor histc(const Tensor& self, int64_t bins, const Scalar& min, const Scalar& max) {
  Tensor out = empty_webgpu({0}, self.options());
  return histc_out(self, bins, min, max, out);
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("bincount", TORCH_FN(bincount));
  m.impl("histc", TORCH_FN(histc));
  m.impl("histc.out", TORCH_FN(histc_out));
}

} // namespace
} // namespace torch_webgpu
