// Registration of the backend with PyTorch, when the library is loaded: its name, allocator, hooks
// and the error classes. Nothing here touches the GPU.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceType.h>

#include <algorithm>

#include "backend/allocator.h"
#include "backend/generator.h"
#include "backend/tensor.h"
#include "backend/torch_versions.h"
#include "runtime/context.h"
#include "runtime/error.h"

namespace torch_webgpu {
namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return is_available(); }
  bool hasPrimaryContext(c10::DeviceIndex index) const override {
    // Every backward() asks for all that there may be, so this loads no drivers to check the index.
    return context_if_initialized(static_cast<uint32_t>(index < 0 ? current_device() : index)) !=
           nullptr;
  }
  void init() const override { current_context(); }
  c10::DeviceIndex deviceCount() const override {
    return is_available() ? static_cast<c10::DeviceIndex>(num_devices()) : c10::DeviceIndex{0};
  }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    exchange_device(resolve_ordinal(index));
  }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return exchange_device(resolve_ordinal(index));
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchange_device(resolve_ordinal(index)); // a negative index keeps the device
  }

  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  c10::Device getDeviceFromPtr(void* data) const override {
    return find_device(data).value_or(webgpu_device());
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(resolve_ordinal(index));
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return make_generator(resolve_ordinal(index));
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
    TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable");
    c10::DataPtr grown = device_allocator(storage.device())->allocate(bytes);
    const uint64_t kept = std::min(bytes, impl->nbytes());
    if (kept != 0) {
      // Whole words: both buffers are padded to them, and what is behind `kept` is undefined
      // anyway.
      const auto& target = *static_cast<const Buffer*>(grown.get_context());
      target.context->stream.copy(buffer_of(storage), 0, target, 0, (kept + 3) / 4 * 4);
    }
    replace_memory(*impl, std::move(grown));
    impl->set_nbytes(bytes);
  }
};

[[noreturn]] void throw_as_c10(ErrorKind kind, const std::string& message) {
  const c10::SourceLocation where = {__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  switch (kind) {
  case ErrorKind::kOutOfMemory:
    throw c10::OutOfMemoryError(where, message);
  case ErrorKind::kNotImplemented:
    throw c10::NotImplementedError(where, message);
  case ErrorKind::kIndex:
    throw c10::IndexError(where, message);
  case ErrorKind::kRuntime:
    break;
  }
  throw c10::Error(where, message);
}

// At load and not at import, so that a C++ program that links the library has the device too.
[[maybe_unused]] const bool registered = [] {
  c10::register_privateuse1_backend("webgpu");
  c10::SetAllocator(kWebGPU, device_allocator(c10::Device(kWebGPU)));
  at::setHostAllocator(kWebGPU, pinned_allocator());
  at::RegisterPrivateUse1HooksInterface(new Hooks); // PyTorch keeps it
  set_error_handler(&throw_as_c10);
  return true;
}();

} // namespace
} // namespace torch_webgpu
