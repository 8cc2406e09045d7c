#include "runtime/commands/uploads.h"

#include <algorithm>
#include <cstring>

namespace torch_webgpu {
namespace {

// Uploads up to this size go through the parameter ring, larger ones through the staging chunks.
constexpr uint64_t kSmallUpload = 64u << 10;

} // namespace

void Uploads::append(const Buffer& target, uint64_t offset, const void* data, uint64_t bytes) {
  if (bytes > kSmallUpload) {
    append_large(target, offset, data, bytes);
    return;
  }
  if (!encoder_.is_open()) { // with nothing open, a queue write is in order by itself
    write_queue(target.handle, offset, data, bytes);
    return;
  }
  encoder_.reserve_parameters(static_cast<uint32_t>(bytes));
  const uint32_t at = ring_.push_padded(data, static_cast<uint32_t>(bytes));
  encoder_.copy(ring_.buffer(), at, target.handle, offset, (bytes + 3) / 4 * 4);
  encoder_.count_command();
}

void Uploads::write_queue(WGPUBuffer target, uint64_t offset, const void* data, uint64_t bytes) {
  const auto* from = static_cast<const uint8_t*>(data);
  const uint64_t whole = bytes / 4 * 4;
  if (whole != 0) {
    device_.api().QueueWriteBuffer(device_.queue(), target, offset, from, whole);
  }
  if (whole != bytes) {
    uint32_t tail = 0;
    std::memcpy(&tail, from + whole, bytes - whole);
    device_.api().QueueWriteBuffer(device_.queue(), target, offset + whole, &tail, sizeof(tail));
  }
}

void Uploads::append_large(const Buffer& target, uint64_t offset, const void* data,
                           uint64_t bytes) {
  const auto* from = static_cast<const uint8_t*>(data);
  const uint64_t padded = (bytes + 3) / 4 * 4;
  for (uint64_t done = 0; done < padded;) {
    const UploadStaging::Region region = staging_.take(padded - done);
    if (region.buffer == nullptr) {
      encoder_.flush(); // submit what is staged so far
      staging_.wait_for_a_chunk();
      continue;
    }
    const uint64_t given = std::min(region.bytes, bytes - done);
    std::memcpy(region.data, from + done, given);
    std::memset(region.data + given, 0, region.bytes - given);
    encoder_.copy(region.buffer, region.offset, target.handle, offset + done, region.bytes);
    done += region.bytes;
    if (staging_.chunk_is_full()) {
      encoder_.flush(); // the device copies this chunk while the host fills the next
    } else {
      encoder_.count_command();
    }
  }
}

} // namespace torch_webgpu
