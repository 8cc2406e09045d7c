// Host memory that the device reads uploads from: mapped buffers that are used over and over.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/device.h"

namespace torch_webgpu {

/// Chunks of mapped memory. A fresh buffer for every upload would cost more than the copy: the host
/// has to fault in its pages. Chunks are created as uploads first need them, up to a bound. Guarded
/// by the stream's lock.
class UploadStaging {
public:
  explicit UploadStaging(const Device& device);
  ~UploadStaging();

  struct Region {
    WGPUBuffer buffer = nullptr; // null: everything is in use by the device
    uint64_t offset = 0;         // bytes, a multiple of 4
    uint8_t* data = nullptr;
    uint64_t bytes = 0; // at most what was asked for; less only where a chunk ends
  };
  /// Mapped memory for the open encoder to copy from, `bytes` (a multiple of 4) or less.
  Region take(uint64_t bytes);
  /// Whether the chunk that take() serves from is used up.
  bool chunk_is_full() const { return current_ == nullptr || current_->used == kChunkBytes; }

  /// Right before the submit whose commands read the regions taken since the last one.
  void before_submit();
  /// Right after it: asks for the memory back.
  void after_submit();
  /// Blocks until the device has read the chunk that was submitted first.
  void wait_for_a_chunk();

private:
  static constexpr uint64_t kChunkBytes = 8ull << 20;
  static constexpr size_t kMostChunks = 8;

  struct Chunk {
    WGPUBuffer buffer = nullptr;
    uint8_t* data = nullptr; // null while the device owns it
    uint64_t used = 0;
    uint64_t serial = 0; // of the submit that used it last
    Completion mapped;
  };
  Chunk* free_chunk();
  Chunk* create_chunk();
  void adopt(Chunk& chunk);

  const Device& device_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  Chunk* current_ = nullptr;
  uint64_t submits_ = 0;
};

} // namespace torch_webgpu
