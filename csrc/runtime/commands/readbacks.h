// Device to host.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/buffer.h"
#include "runtime/commands/encoder.h"
#include "runtime/commands/kernel_errors.h"

namespace torch_webgpu {

/// A readback under way: started now, awaited later.
class Readback {
public:
  virtual ~Readback() = default;
  virtual bool ready() = 0;
  /// Waits if needed and copies the bytes out. Once only. Raises pending errors.
  virtual void wait(void* data) = 0;
};

class Readbacks {
public:
  /// Readbacks take the lock themselves when they are awaited.
  Readbacks(Device& device, std::recursive_mutex& mutex, Encoder& encoder, KernelErrors& errors)
      : device_(device), mutex_(mutex), encoder_(encoder), errors_(errors) {}

  /// Appends the copy, flushes, returns at once. Any offset and size. Without `checks`, pending
  /// errors of kernels stay for the next readback that has them.
  std::unique_ptr<Readback> start(const Buffer& source, uint64_t offset, uint64_t bytes,
                                  bool checks = true);
  /// Flushes, waits, and copies the bytes to `data`.
  void read(const Buffer& source, uint64_t offset, void* data, uint64_t bytes, bool checks = true);
  /// Waits for the error words, if a dispatch may have written them, and raises what they say.
  void check_errors();

private:
  class Mapped;
  using Staging = std::pair<uint64_t, WGPUBuffer>; // with its size

  Staging take_staging(uint64_t size);

  Device& device_;
  std::recursive_mutex& mutex_;
  Encoder& encoder_;
  KernelErrors& errors_;
  std::multimap<uint64_t, WGPUBuffer> pool_; // by size
};

} // namespace torch_webgpu
