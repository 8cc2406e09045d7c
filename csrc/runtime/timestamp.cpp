#include "runtime/api.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/stream_internal.h"

namespace torch_webgpu {
namespace {

class BlockTimestamp final : public Timestamp {
public:
  BlockTimestamp(std::shared_ptr<TimestampBlock> block, uint32_t index)
      : block_(std::move(block)), index_(index) {}
  uint64_t nanoseconds() override { return block_->nanoseconds(index_); }

private:
  std::shared_ptr<TimestampBlock> block_;
  uint32_t index_;
};

} // namespace

TimestampBlock::TimestampBlock(Stream& stream) : stream_(stream) {
  const Device& device = stream_.device_;
  WGPUQuerySetDescriptor descriptor = WGPU_QUERY_SET_DESCRIPTOR_INIT;
  descriptor.type = WGPUQueryType_Timestamp;
  descriptor.count = kCapacity;
  queries_ = device.api().DeviceCreateQuerySet(device.handle(), &descriptor);
  resolved_ =
      stream_.create_buffer(kCapacity * sizeof(uint64_t),
                            WGPUBufferUsage_QueryResolve | WGPUBufferUsage_CopySrc, "timestamps");
}

TimestampBlock::~TimestampBlock() {
  stream_.device_.api().QuerySetRelease(queries_);
  stream_.device_.api().BufferRelease(resolved_);
}

std::shared_ptr<Timestamp> TimestampBlock::record(const std::shared_ptr<TimestampBlock>& block,
                                                  WGPUCommandEncoder encoder) {
  const Api& api = block->stream_.device_.api();
  WGPUPassTimestampWrites writes = WGPU_PASS_TIMESTAMP_WRITES_INIT;
  writes.querySet = block->queries_;
  writes.beginningOfPassWriteIndex = WGPU_QUERY_SET_INDEX_UNDEFINED;
  writes.endOfPassWriteIndex = block->used_;
  WGPUComputePassDescriptor descriptor = WGPU_COMPUTE_PASS_DESCRIPTOR_INIT;
  descriptor.timestampWrites = &writes;
  WGPUComputePassEncoder pass = api.CommandEncoderBeginComputePass(encoder, &descriptor);
  api.ComputePassEncoderEnd(pass);
  api.ComputePassEncoderRelease(pass);
  return std::make_shared<BlockTimestamp>(block, block->used_++);
}

uint64_t TimestampBlock::nanoseconds(uint32_t index) {
  std::lock_guard<std::recursive_mutex> lock(stream_.mutex_);
  if (index >= values_.size()) {
    resolve();
  }
  return values_[index];
}

void TimestampBlock::resolve() {
  const Device& device = stream_.device_;
  const uint32_t count = used_;
  stream_.end_pass();
  stream_.open_encoder();
  device.api().CommandEncoderResolveQuerySet(stream_.encoder_, queries_, 0, count, resolved_, 0);
  Buffer source;
  source.handle = resolved_;
  source.size = kCapacity * sizeof(uint64_t);
  values_.resize(count);
  stream_.read(source, 0, values_.data(), count * sizeof(uint64_t));
  if (device.api().QueueGetTimestampPeriod != nullptr) {
    const double period = device.api().QueueGetTimestampPeriod(device.queue());
    for (uint64_t& value : values_) {
      value = static_cast<uint64_t>(static_cast<double>(value) * period);
    }
  }
}

} // namespace torch_webgpu
