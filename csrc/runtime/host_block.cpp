#include "runtime/host_block.h"

#include <new>

#include "runtime/context.h"
#include "runtime/device.h"

namespace torch_webgpu {

HostBlock::HostBlock(uint64_t bytes)
    : memory_(::operator new(bytes, std::align_val_t{kAlignment}),
              [](void* data) { ::operator delete(data, std::align_val_t{kAlignment}); }),
      bytes_(bytes) {}

HostBlock::~HostBlock() {
  if (in_bad_fork()) { // the buffers are the parent's
    return;
  }
  for (const OfDevice& of : devices_) {
    if (of.context != nullptr) {
      std::lock_guard<std::recursive_mutex> lock(of.context->mutex);
      for (WGPUBuffer buffer : of.buffers) {
        if (buffer != nullptr) {
          of.context->device.api().BufferRelease(buffer);
        }
      }
    }
  }
}

bool HostBlock::is_in_use() const {
  if (in_bad_fork()) { // devices read and write the parent's memory
    return false;
  }
  for (const OfDevice& of : devices_) {
    if (of.context == nullptr) {
      continue;
    }
    const std::unique_lock<std::recursive_mutex> lock(of.context->mutex, std::try_to_lock);
    if (!lock.owns_lock() || !of.context->stream.is_complete(of.last_use)) {
      return true;
    }
  }
  return false;
}

WGPUBuffer HostBlock::buffer(Context& context, HostCopy way) {
  // Another context of the same index is one for untrusted programs, which may be made anew.
  if (context_if_initialized(context.index) != &context) {
    return nullptr;
  }
  OfDevice& of = devices_.at(context.index);
  of.context = &context;
  const auto i = static_cast<size_t>(way);
  if (of.asked[i] < kAsked && ++of.asked[i] == kAsked) {
    // A buffer that can be mapped is made visible to the host behind each submission that writes
    // to it.
    of.buffers[i] = context.device.create_buffer_over(
        memory_, bytes_,
        way == HostCopy::from_host ? WGPUBufferUsage_CopySrc
                                   : WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst);
  }
  return of.buffers[i];
}

} // namespace torch_webgpu
