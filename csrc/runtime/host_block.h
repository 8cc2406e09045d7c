// Host memory that devices copy from and to by themselves.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "runtime/adapter_choice.h"
#include "runtime/handles.h"

namespace torch_webgpu {

class Context;

/// Which way a device copies.
enum class HostCopy : uint8_t { from_host, to_host };

/// A block of host memory. Devices that can (Capabilities::host_memory) use it as a buffer. To make
/// that buffer takes 5 to 50 ms (H200, blocks of 256 KiB to 256 MiB), so the first copy in each
/// direction goes without, and the second makes it. The memory is freed when the block is gone and
/// no device uses it any more.
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

  /// Whether a device may still have to read it or write to it. Never waits.
  bool is_in_use() const;
  /// Whether the context's device has a buffer over it.
  bool is_buffer_of(const Context& context) const;

private:
  friend class Stream;
  // Guarded by the context's lock.
  struct OfDevice {
    Context* context = nullptr;
    std::array<WGPUBuffer, 2> buffers{}; // for each HostCopy
    std::array<uint8_t, 2> asked{};      // copies that asked for the buffer, counted up to kAsked
  };
  static constexpr uint8_t kAsked = 2; // the copy that makes the buffer

  /// Whether a device can have such buffers. A driver's refusal loses a device, so the first
  /// question tries it out on a device of its own. Not to be asked with the context's lock held.
  static bool may_be_buffer(const Context& context);
  /// The block as a buffer of the context's device; null where it cannot be one, and the first
  /// time.
  WGPUBuffer buffer(Context& context, HostCopy way);

  /// While it lives, and until the device has finished what is submitted by then, the block is in
  /// use.
  class Use {
  public:
    Use(HostBlock& block, Context& context);
    ~Use(); // submits what is open

  private:
    HostBlock& block_;
    Context& context_;
  };

  std::shared_ptr<void> memory_;
  uint64_t bytes_;
  std::shared_ptr<std::atomic<uint32_t>> uses_; // callbacks may outlive the block
  std::array<OfDevice, kMostDevices> devices_;
};

} // namespace torch_webgpu
