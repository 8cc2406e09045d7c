// Views: PyTorch's own implementations compute sizes and strides only, so they serve every strided
// device. Without these registrations a view would be a copy through the CPU.
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>

#include "backend/registration.h"

namespace torch_webgpu {
namespace {

// Nothing to do: there is one stream, so memory is reused only by later work.
void record_stream(at::Tensor&, at::Stream) {}

// Whether `self.data = from` may replace the data: between the same kinds of strided tensors, on
// any devices, as among PyTorch's own. nn.Module.to() asks this. If the answer is false it makes
// new parameters. Shared parameters are then no longer shared, and an optimizer keeps the old ones.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  using c10::BackendComponent;
  constexpr c10::DispatchKeySet backends(
      {BackendComponent::CPUBit, BackendComponent::CUDABit, BackendComponent::MPSBit,
       BackendComponent::XPUBit, BackendComponent::HPUBit, BackendComponent::MTIABit,
       BackendComponent::HIPBit, BackendComponent::PrivateUse1Bit});
  constexpr c10::DispatchKeySet dense(c10::DispatchKey::Dense);
  const auto is_dense = [&](c10::DispatchKeySet keys) {
    return keys.has_any(dense) && keys.has_any(backends);
  };
  return self.key_set() == from.key_set() || (is_dense(self.key_set()) && is_dense(from.key_set()));
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  m.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  m.impl("is_set_to", TORCH_FN(at::native::is_set_to));
  m.impl("record_stream", TORCH_FN(record_stream));
}

// Copies read the lazy conjugate and negative bits of such views themselves. The boxed fallbacks of
// these keys would resolve the bits by a copy, and so never end.
TW_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}

TW_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}

} // namespace
} // namespace torch_webgpu
