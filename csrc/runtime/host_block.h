// Host memory that devices copy from and to by themselves.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "runtime/adapter_choice.h"
#include "runtime/handles.h"

namespace torch_webgpu {

class Context;

/// Which way a device copies.
enum class HostCopy : uint8_t { from_host, to_host };

/// A block of host memory. Devices that can (Capabilities::host_memory) use it as a buffer. That
/// takes 5 to 50 ms to make (H200), so it is made for a second copy. The memory is freed when the
/// block is gone and no device uses it any more.
class HostBlock {
public:
  /// Addresses and sizes of such memory are multiples of this, in bytes, as Dawn asks on Vulkan.
  static constexpr uint64_t kAlignment = 4096;

  /// `bytes`: a multiple of kAlignment. Throws std::bad_alloc.
  explicit HostBlock(uint64_t bytes);
  ~HostBlock();
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;

  uint8_t* data() const { return static_cast<uint8_t*>(memory_.get()); }
  uint64_t bytes() const { return bytes_; }

  /// Whether a device may still have to read it or write to it. Never waits: true also where
  /// another thread has the device.
  bool is_in_use() const;

private:
  friend class Stream;
  // Guarded by the context's lock.
  struct OfDevice {
    Context* context = nullptr;
    std::array<WGPUBuffer, 2> buffers{}; // for each HostCopy
    std::array<uint8_t, 2> asked{};      // how often, up to kAsked
    uint64_t last_use = 0;               // serial of a submission
  };

  static constexpr uint8_t kAsked = 2; // makes the buffer

  /// The block as a buffer of the context's device; null where it cannot be one, and the first
  /// time.
  WGPUBuffer buffer(Context& context, HostCopy way);

  std::shared_ptr<void> memory_;
  uint64_t bytes_;
  std::array<OfDevice, kMostDevices> devices_;
};

} // namespace torch_webgpu
