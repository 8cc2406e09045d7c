// torch._lazy_clone: clones that share memory until one of them is written. c10 counts who shares
// it, and copies for a storage that is written (c10::impl::cow).
#include <ATen/core/Tensor.h>
#include <ATen/ops/_lazy_clone_native.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/COW.h>

#include <array>

#include "backend/allocator.h"
#include "backend/graph.h"
#include "backend/registration.h"
#include "backend/tensor.h"
#include "runtime/context.h"

namespace torch_webgpu {
namespace {

// c10 shares only memory whose DataPtr has its address as context, and ours has the Buffer. So the
// DataPtr is rewritten when a storage is cloned lazily, and back when the storage is written.
void free_address(void* address) {
  if (!in_bad_fork()) {
    free_buffer(const_cast<Buffer*>(find_position(address).buffer));
  }
}

// Where c10 copies memory for a storage that is written. During a capture the copy is executed at
// once and not recorded: the clone was made before, and a replay must not copy it again.
class SharedAllocator final : public c10::Allocator {
public:
  explicit SharedAllocator(c10::Device device) : device_(device) {}

  c10::DataPtr allocate(size_t bytes) override {
    const Uncaptured outside(context(static_cast<uint32_t>(device_.index())));
    return device_allocator(device_)->allocate(bytes);
  }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    const Uncaptured outside(context(static_cast<uint32_t>(device_.index())));
    device_allocator(device_)->copy_data(target, source, bytes);
  }

  static SharedAllocator* of(c10::Device device) {
    static const auto* all = [] { // storages point to them
      auto* made = new std::array<SharedAllocator*, kMostDevices>;
      for (uint32_t index = 0; index < kMostDevices; ++index) {
        (*made)[index] = new SharedAllocator(webgpu_device(static_cast<c10::DeviceIndex>(index)));
      }
      return made;
    }();
    return all->at(static_cast<size_t>(device.index()));
  }

private:
  const c10::Device device_;
};

bool is_shared(const c10::StorageImpl& storage) {
  return c10::impl::cow::is_cow_data_ptr(storage.data_ptr());
}

// Gives the storage the form of DataPtr that c10 can share.
void make_shareable(c10::StorageImpl& storage) {
  c10::DataPtr& memory = storage._mutable_data_ptr_no_checks();
  const c10::Device device = memory.device();
  if (memory.get_deleter() == &free_buffer) {
    memory.release_context();
    memory = {memory.get(), memory.get(), &free_address, device};
    storage.set_allocator(SharedAllocator::of(device));
  }
}

// Gives a storage that shares nothing the form that the allocator gives.
void make_own(c10::StorageImpl& storage) {
  c10::DataPtr& memory = storage._mutable_data_ptr_no_checks();
  const c10::Device device = memory.device();
  if (memory.get_deleter() == &free_address) {
    memory.release_context();
    auto* buffer = const_cast<Buffer*>(find_position(memory.get()).buffer);
    memory = {memory.get(), buffer, &free_buffer, device};
  }
  if (memory.get_deleter() == &free_buffer) {
    storage.set_allocator(device_allocator(device));
  }
}

// A graph reads and writes the memory that it has captured. A tensor that moved to other memory
// when it is written would be lost to it.
bool may_move(const c10::StorageImpl& storage) {
  if (CapturedGraph::is_capturing()) {
    return false;
  }
  const BufferPosition place = find_position(storage.data_ptr());
  std::lock_guard<std::recursive_mutex> lock(place.buffer->context->mutex);
  return place.buffer->pins == 0 && place.buffer->pool == nullptr;
}

at::Tensor lazy_clone(const at::Tensor& self) {
  c10::StorageImpl& storage = *self.storage().unsafeGetStorageImpl();
  if (may_move(storage)) {
    make_shareable(storage);
    return at::native::_lazy_clone(self);
  }
  c10::Allocator* allocator = device_allocator(self.device());
  c10::Storage copy(c10::Storage::use_byte_size_t(), storage.nbytes(),
                    allocator->clone(storage.data_ptr().get(), storage.nbytes()), allocator,
                    storage.resizable());
  at::Tensor out =
      at::detail::make_tensor<c10::TensorImpl>(std::move(copy), self.key_set(), self.dtype());
  out.unsafeGetTensorImpl()->set_sizes_and_strides(self.sizes(), self.strides(),
                                                   self.storage_offset());
  return out;
}

} // namespace

const Buffer& find_buffer(const c10::Storage& storage, Use use) {
  c10::StorageImpl& impl = *storage.unsafeGetStorageImpl();
  if (is_shared(impl) && (use == Use::kWrite || CapturedGraph::is_capturing())) {
    impl.mutable_data_ptr();
  }
  if (use == Use::kWrite) {
    make_own(impl);
  }
  // A ZeroTensor of autograd has a size and no memory. Where a kernel takes one, ATen has to
  // allocate the zeros before, or the kernel's function to ask for it.
  TORCH_INTERNAL_ASSERT(impl.nbytes() == 0 || impl.data_ptr().get() != nullptr,
                        "a tensor of zeros without memory is an operand of a kernel");
  return *find_position(impl.data_ptr()).buffer;
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_lazy_clone", TORCH_FN(lazy_clone)); }

} // namespace torch_webgpu
