// equal: whether two tensors have the same shape and values, as a bool on the host.
#include <ATen/core/Tensor.h>
#include <ATen/ops/eq.h>

#include "backend/registration.h"
#include "backend/tensor.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

bool is_same_view(const Tensor& a, const Tensor& b) {
  return a.is_alias_of(b) && a.dtype() == b.dtype() && a.storage_offset() == b.storage_offset() &&
         a.strides() == b.strides() && a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

bool equal(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.device() == other.device(),
              "Cannot compare two tensors on different devices. Got: ", self.device(), " and ",
              other.device());
  if (self.sizes() != other.sizes()) {
    return false;
  }
  // Two integer tensors at one place in memory are equal. Floats are not if there is a NaN.
  if (self.numel() == 0 || (c10::isIntegralType(self.scalar_type(), /*includeBool=*/true) &&
                            is_same_view(self, other))) {
    return true;
  }
  return at::eq(self, other).all().item<bool>();
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("equal", TORCH_FN(equal)); }

} // namespace
} // namespace torch_webgpu
