// Host to device.
#pragma once

#include <cstdint>

#include "runtime/buffer.h"
#include "runtime/commands/encoder.h"

namespace torch_webgpu {

class Uploads {
public:
  Uploads(Device& device, Encoder& encoder, ParameterRing& ring, UploadStaging& staging)
      : device_(device), encoder_(encoder), ring_(ring), staging_(staging) {}

  /// Appends the upload; see CommandSink::upload. `data` is copied before returning.
  void append(const Buffer& target, uint64_t offset, const void* data, uint64_t bytes);

private:
  void write_queue(WGPUBuffer target, uint64_t offset, const void* data, uint64_t bytes);
  void append_large(const Buffer& target, uint64_t offset, const void* data, uint64_t bytes);

  Device& device_;
  Encoder& encoder_;
  ParameterRing& ring_;
  UploadStaging& staging_;
};

} // namespace torch_webgpu
