#include "runtime/commands/staging.h"

#include <algorithm>

#include "runtime/api.h"
#include "runtime/error.h"

namespace torch_webgpu {

UploadStaging::UploadStaging(const Device& device) : device_(device) {}

// Lives as long as the process, see Device::~Device.
UploadStaging::~UploadStaging() = default;

UploadStaging::Region UploadStaging::take(uint64_t bytes) {
  if (chunk_is_full()) {
    current_ = free_chunk();
    if (current_ == nullptr) {
      return {};
    }
  }
  Region region;
  region.buffer = current_->buffer;
  region.offset = current_->used;
  region.data = current_->data + current_->used;
  region.bytes = std::min(bytes, kChunkBytes - current_->used);
  current_->used += region.bytes;
  return region;
}

UploadStaging::Chunk* UploadStaging::free_chunk() {
  for (const auto& chunk : chunks_) {
    if (chunk->data == nullptr && chunk->mapped.done.load(std::memory_order_acquire)) {
      adopt(*chunk);
    }
    if (chunk->data != nullptr && chunk->used == 0) {
      return chunk.get();
    }
  }
  return chunks_.size() < kMostChunks ? create_chunk() : nullptr;
}

UploadStaging::Chunk* UploadStaging::create_chunk() {
  WGPUBufferDescriptor descriptor = WGPU_BUFFER_DESCRIPTOR_INIT;
  descriptor.label = to_view("upload");
  descriptor.usage = WGPUBufferUsage_MapWrite | WGPUBufferUsage_CopySrc;
  descriptor.size = kChunkBytes;
  descriptor.mappedAtCreation = true;
  auto chunk = std::make_unique<Chunk>();
  const Device::ScopedError error = device_.with_error_scopes(
      [&] { chunk->buffer = device_.api().DeviceCreateBuffer(device_.handle(), &descriptor); });
  if (!error.message.empty() || chunk->buffer == nullptr) {
    if (!chunks_.empty()) {
      return nullptr; // continue with the existing chunks
    }
    raise(ErrorKind::kOutOfMemory, "could not create an upload buffer: " + error.message);
  }
  adopt(*chunk);
  return chunks_.emplace_back(std::move(chunk)).get();
}

void UploadStaging::adopt(Chunk& chunk) {
  void* data = device_.api().BufferGetMappedRange(chunk.buffer, 0, kChunkBytes);
  if (data == nullptr) {
    raise(ErrorKind::kRuntime, "an upload buffer could not be mapped");
  }
  chunk.data = static_cast<uint8_t*>(data);
  chunk.used = 0;
}

void UploadStaging::before_submit() {
  for (const auto& chunk : chunks_) {
    if (chunk->used != 0 && chunk->data != nullptr) {
      device_.api().BufferUnmap(chunk->buffer);
      chunk->data = nullptr;
    }
  }
  current_ = nullptr;
}

void UploadStaging::after_submit() {
  ++submits_;
  for (const auto& chunk : chunks_) {
    if (chunk->used == 0 || chunk->data != nullptr) {
      continue;
    }
    chunk->used = 0;
    chunk->serial = submits_;
    chunk->mapped.done.store(false, std::memory_order_relaxed);
    WGPUBufferMapCallbackInfo callback = WGPU_BUFFER_MAP_CALLBACK_INFO_INIT;
    callback.mode = WGPUCallbackMode_AllowProcessEvents;
    callback.userdata1 = &chunk->mapped;
    // A failure leaves no mapped range, which adopt() finds.
    callback.callback = [](WGPUMapAsyncStatus, WGPUStringView, void* userdata, void*) {
      static_cast<Completion*>(userdata)->done.store(true, std::memory_order_release);
    };
    chunk->mapped.future =
        device_.api().BufferMapAsync(chunk->buffer, WGPUMapMode_Write, 0, kChunkBytes, callback).id;
  }
}

void UploadStaging::wait_for_a_chunk() {
  Chunk* oldest = nullptr;
  for (const auto& chunk : chunks_) {
    if (chunk->data == nullptr && (oldest == nullptr || chunk->serial < oldest->serial)) {
      oldest = chunk.get();
    }
  }
  if (oldest == nullptr) {
    raise(ErrorKind::kOutOfMemory, "no memory for an upload buffer");
  }
  device_.wait(oldest->mapped);
}

} // namespace torch_webgpu
