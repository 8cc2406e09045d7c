#include "backend/empty.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/TensorFactories.h>
#include <c10/core/Allocator.h>

#include "backend/allocator.h"
#include "backend/registration.h"
#include "backend/tensor.h"

namespace torch_webgpu {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

void check_options(const at::TensorOptions& options) {
  TORCH_CHECK_NOT_IMPLEMENTED(options.layout() == c10::kStrided, "webgpu tensors are strided, not ",
                              options.layout());
  TORCH_CHECK(!options.pinned_memory(), "Only dense CPU tensors can be pinned");
  resolve_ordinal(options.device().index());
}

// Fills a new tensor if torch.use_deterministic_algorithms asks for it.
at::Tensor filled_if_deterministic(at::Tensor tensor) {
  const auto& settings = at::globalContext();
  if (C10_UNLIKELY(settings.deterministicAlgorithms() &&
                   settings.deterministicFillUninitializedMemory())) {
    at::native::fill_empty_deterministic_(tensor);
  }
  return tensor;
}

at::Tensor empty_memory_format(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                               std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory,
                               std::optional<at::MemoryFormat> memory_format) {
  const auto options = at::TensorOptions()
                           .dtype(dtype)
                           .layout(layout)
                           .device(device)
                           .pinned_memory(pin_memory)
                           .memory_format(memory_format);
  return filled_if_deterministic(empty_webgpu(size, options));
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                         std::optional<at::Device> device, std::optional<bool> pin_memory) {
  const auto options =
      at::TensorOptions().dtype(dtype).layout(layout).device(device).pinned_memory(pin_memory);
  return filled_if_deterministic(empty_strided_webgpu(size, stride, options));
}

// A tensor of zeros without memory, which autograd passes for gradients that are known to be zero.
// ATen's fallback for the ZeroTensor key allocates the zeros before a kernel is called.
at::Tensor efficientzerotensor(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                               std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory) {
  at::native::ZeroTensorAllocator allocator(
      webgpu_device(resolve_ordinal(device ? device->index() : -1)));
  return at::detail::empty_generic(size, &allocator,
                                   kKeys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
                                   at::dtype_or_default(dtype), std::nullopt);
}

} // namespace

at::Tensor empty_webgpu(at::IntArrayRef size, at::ScalarType dtype, c10::Device device) {
  return at::detail::empty_generic(size, device_allocator(device), kKeys, dtype, std::nullopt);
}

at::Tensor empty_webgpu(at::IntArrayRef size, const at::TensorOptions& options) {
  check_options(options);
  return at::detail::empty_generic(size, device_allocator(options.device()), kKeys,
                                   c10::typeMetaToScalarType(options.dtype()),
                                   options.memory_format_opt());
}

at::Tensor empty_strided_webgpu(at::IntArrayRef size, at::IntArrayRef stride,
                                const at::TensorOptions& options) {
  check_options(options);
  return at::detail::empty_strided_generic(size, stride, device_allocator(options.device()), kKeys,
                                           c10::typeMetaToScalarType(options.dtype()));
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty_memory_format));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("_efficientzerotensor", TORCH_FN(efficientzerotensor));
}

} // namespace torch_webgpu
