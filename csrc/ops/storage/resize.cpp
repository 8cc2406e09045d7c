// resize_ and set_: changing a tensor's shape and storage in place.
#include <ATen/Context.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>

#include "backend/allocator.h"
#include "backend/registration.h"
#include "backend/tensor.h"

namespace torch_webgpu {
namespace {

void grow_storage(c10::TensorImpl* self) {
  const size_t bytes = at::detail::computeStorageNbytes(self->sizes(), self->strides(),
                                                        self->itemsize(), self->storage_offset());
  // A tensor without elements leaves its storage alone, whatever its offset.
  if (self->numel() != 0 && bytes > self->unsafe_storage().nbytes()) {
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(self->unsafe_storage(), bytes);
  }
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size,
                          std::optional<at::MemoryFormat> memory_format) {
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  const auto old_bytes = static_cast<int64_t>(impl->unsafe_storage().nbytes());
  if (impl->sizes() != size) {
    impl->set_sizes_contiguous(size);
    grow_storage(impl);
  }
  if (memory_format.has_value()) {
    TORCH_CHECK(*memory_format != at::MemoryFormat::Preserve, "Unsupported memory format",
                *memory_format);
    impl->empty_tensor_restride(*memory_format);
  }
  const at::Context& settings = at::globalContext();
  if (settings.deterministicAlgorithms() && settings.deterministicFillUninitializedMemory()) {
    at::native::fill_resize_deterministic_(self, old_bytes);
  }
  return self;
}

at::Tensor& set_storage_offset(at::Tensor& self, at::Storage source, int64_t offset,
                               at::IntArrayRef size, at::IntArrayRef stride) {
  at::native::checkSetStorage(self, std::move(source), offset, size, stride);
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  if (stride.data() != nullptr) {
    impl->set_sizes_and_strides(size, stride);
  } else {
    impl->set_sizes_contiguous(size);
  }
  grow_storage(impl);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const auto numel = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_storage_offset(self, std::move(source), 0, {numel}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()) {
    return self;
  }
  return set_storage_offset(self, source.storage(), source.storage_offset(), source.sizes(),
                            source.strides());
}

at::Tensor& set_none(at::Tensor& self) {
  at::Storage empty(c10::Storage::use_byte_size_t(), 0, device_allocator(self.device()),
                    /*resizable=*/true);
  return set_storage_offset(self, std::move(empty), 0, {0}, {});
}

// Writes an output of an operator that ran on the CPU. `self` is what the CPU's function made of
// its copy of `target`: where that function resized it, `target` takes its strides as well as its
// size.
at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& target) {
  if (target.sizes() != self.sizes()) {
    target.resize_(self.sizes());
    if (self.is_non_overlapping_and_dense()) {
      target.unsafeGetTensorImpl()->set_sizes_and_strides(self.sizes(), self.strides());
    }
  }
  target.copy_(self);
  return target;
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("set_.source_Storage", TORCH_FN(set_storage));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_offset));
  m.impl("set_.source_Tensor", TORCH_FN(set_tensor));
  m.impl("set_", TORCH_FN(set_none));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
}

} // namespace
} // namespace torch_webgpu
