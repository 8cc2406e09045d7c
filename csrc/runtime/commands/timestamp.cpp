#include "runtime/commands/timestamp.h"

#include <vector>

namespace torch_webgpu {

// A query set and the timestamps in it.
class Timestamps::Block {
public:
  explicit Block(Timestamps& owner) : owner_(owner) {
    const Device& device = owner_.device_;
    WGPUQuerySetDescriptor descriptor = WGPU_QUERY_SET_DESCRIPTOR_INIT;
    descriptor.type = WGPUQueryType_Timestamp;
    descriptor.count = kCapacity;
    queries_ = device.api().DeviceCreateQuerySet(device.handle(), &descriptor);
    resolved_ =
        device.create_buffer(kCapacity * sizeof(uint64_t),
                             WGPUBufferUsage_QueryResolve | WGPUBufferUsage_CopySrc, "timestamps");
  }
  ~Block() {
    owner_.device_.api().QuerySetRelease(queries_);
    owner_.device_.api().BufferRelease(resolved_);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  bool full() const { return used_ == kCapacity; }

  // Writes the next timestamp through an empty compute pass.
  uint32_t record() {
    const Api& api = owner_.device_.api();
    WGPUPassTimestampWrites writes = WGPU_PASS_TIMESTAMP_WRITES_INIT;
    writes.querySet = queries_;
    writes.beginningOfPassWriteIndex = WGPU_QUERY_SET_INDEX_UNDEFINED;
    writes.endOfPassWriteIndex = used_;
    WGPUComputePassDescriptor descriptor = WGPU_COMPUTE_PASS_DESCRIPTOR_INIT;
    descriptor.timestampWrites = &writes;
    WGPUComputePassEncoder pass =
        api.CommandEncoderBeginComputePass(owner_.encoder_.outside_pass(), &descriptor);
    api.ComputePassEncoderEnd(pass);
    api.ComputePassEncoderRelease(pass);
    return used_++;
  }

  // Resolves all timestamps written so far if needed.
  uint64_t nanoseconds(uint32_t index) {
    std::lock_guard<std::recursive_mutex> lock(owner_.mutex_);
    if (index >= values_.size()) {
      resolve();
    }
    return values_[index];
  }

private:
  static constexpr uint32_t kCapacity = 2048;

  void resolve() {
    const Device& device = owner_.device_;
    const uint32_t count = used_;
    device.api().CommandEncoderResolveQuerySet(owner_.encoder_.outside_pass(), queries_, 0, count,
                                               resolved_, 0);
    Buffer source;
    source.handle = resolved_;
    source.size = kCapacity * sizeof(uint64_t);
    std::vector<uint64_t> values(count);
    // An error of a kernel is the program's, which did not ask for these times.
    owner_.readbacks_.read(source, 0, values.data(), count * sizeof(uint64_t), /*checks=*/false);
    if (device.api().QueueGetTimestampPeriod != nullptr) {
      const double period = device.api().QueueGetTimestampPeriod(device.queue());
      for (uint64_t& value : values) {
        value = static_cast<uint64_t>(static_cast<double>(value) * period);
      }
    }
    values_ = std::move(values);
  }

  Timestamps& owner_;
  WGPUQuerySet queries_ = nullptr;
  WGPUBuffer resolved_ = nullptr;
  uint32_t used_ = 0;
  std::vector<uint64_t> values_;
};

class Timestamps::Entry final : public Timestamp {
public:
  Entry(std::shared_ptr<Block> block, uint32_t index) : block_(std::move(block)), index_(index) {}
  uint64_t nanoseconds() override { return block_->nanoseconds(index_); }

private:
  std::shared_ptr<Block> block_;
  uint32_t index_;
};

std::shared_ptr<Timestamp> Timestamps::record() {
  if (block_ == nullptr || block_->full()) {
    block_ = std::make_shared<Block>(*this);
  }
  const uint32_t index = block_->record();
  auto stamp = std::make_shared<Entry>(block_, index);
  encoder_.count_command();
  return stamp;
}

} // namespace torch_webgpu
