#include "runtime/stream.h"

#include <algorithm>

#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/host_block.h"

namespace torch_webgpu {
namespace {

// Of fewer bytes the host's copy takes less time than a submission.
constexpr uint64_t kLeastHostCopy = 256u << 10;

// Raises in a forked child, which has the buffers of its parent but not its device: the driver
// would wait for threads that the child does not have.
void check_process() {
  if (in_bad_fork()) [[unlikely]] {
    context();
  }
}

// Before the host waits for a stream, without its lock: commands of other devices that wait to be
// submitted would otherwise wait as long, and those devices with them.
void submit_elsewhere(const Stream& waited) {
  for (uint32_t index = 0; index < kMostDevices; ++index) {
    Context* other = context_if_initialized(index);
    if (other != nullptr && &other->stream != &waited) {
      other->stream.flush_if_free();
    }
  }
}

} // namespace

Stream::Stream(Device& device, std::recursive_mutex& mutex)
    : device_(device), mutex_(mutex), ring_(device), staging_(device), submissions_(device),
      encoder_(device, ring_, staging_, submissions_), errors_(device),
      bind_groups_(device, ring_.buffer(), errors_.buffer()),
      uploads_(device, encoder_, ring_, staging_), readbacks_(device, mutex, encoder_, errors_),
      timestamps_(device, mutex, encoder_, readbacks_) {}

// ---- Commands

inline void Stream::check_dispatch(const Pipeline& pipeline, const Binding* bindings,
                                   uint32_t num_bindings, uint32_t params_bytes) const {
  if (num_bindings != pipeline.layout->binding.num_buffers || params_bytes > kParamsWindow) {
    raise(ErrorKind::kRuntime,
          pipeline.label +
              ": the number of bindings or the size of the parameters does not match the pipeline");
  }
  const uint64_t limit = device_.caps().max_storage_binding_size;
  for (uint32_t i = 0; i < num_bindings; ++i) {
    const Binding& binding = bindings[i];
    if ((binding.size != 0 ? binding.size : binding.buffer->size - binding.offset) > limit) {
      raise(ErrorKind::kNotImplemented,
            pipeline.label + "(): a tensor of " + std::to_string(binding.buffer->size) +
                " bytes is larger than a storage binding of this adapter (" +
                std::to_string(limit) + " bytes), and this kernel cannot bind it in parts");
    }
  }
}

inline void Stream::encode(const Pipeline& pipeline, const Binding* bindings, uint32_t num_bindings,
                           const void* params, uint32_t params_bytes, Grid grid) {
  encoder_.reserve_parameters(params_bytes);
  const uint32_t offset = ring_.push(params, params_bytes);
  encoder_.dispatch(pipeline, bind_groups_.get(*pipeline.layout, bindings, num_bindings), offset,
                    grid);
  errors_.arm(pipeline.layout->binding.checks_indices);
  ++stats_.dispatches;
}

void Stream::dispatch(const Pipeline& pipeline, const Binding* bindings, uint32_t num_bindings,
                      const void* params, uint32_t params_bytes, Grid grid) {
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) {
    return;
  }
  check_process();
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  device_.throw_pending_error();
  check_dispatch(pipeline, bindings, num_bindings, params_bytes);
  if (observed_) [[unlikely]] {
    dispatch_observed(pipeline, bindings, num_bindings, params, params_bytes, grid);
    return;
  }
  encode(pipeline, bindings, num_bindings, params, params_bytes, grid);
  encoder_.count_command();
}

void Stream::dispatch_observed(const Pipeline& pipeline, const Binding* bindings,
                               uint32_t num_bindings, const void* params, uint32_t params_bytes,
                               Grid grid) {
  if (recorder_ != nullptr) {
    recorder_->dispatch(pipeline, bindings, num_bindings, params, params_bytes, grid);
    if (!recorder_->executes()) {
      return;
    }
  }
  if (listener_ != nullptr) {
    listener_->begin(pipeline);
  }
  encode(pipeline, bindings, num_bindings, params, params_bytes, grid);
  if (listener_ != nullptr) {
    listener_->end();
  }
  encoder_.count_command();
}

void Stream::dispatch_prepared(std::span<const PreparedDispatch> dispatches) {
  check_process();
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  device_.throw_pending_error();
  check_executing("a graph cannot be replayed");
  for (const PreparedDispatch& dispatch : dispatches) {
    if (listener_ != nullptr) [[unlikely]] {
      listener_->begin(*dispatch.pipeline);
    }
    encoder_.dispatch(*dispatch.pipeline, dispatch.group, dispatch.params_offset, dispatch.grid);
    errors_.arm(dispatch.pipeline->layout->binding.checks_indices);
    if (listener_ != nullptr) [[unlikely]] {
      listener_->end();
    }
    encoder_.count_command();
  }
  stats_.dispatches += dispatches.size();
}

WGPUBindGroup Stream::create_bind_group(const PipelineLayout& layout,
                                        std::span<const Binding> bindings, WGPUBuffer params,
                                        WGPUBuffer errors) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  return bind_groups_.create(layout, bindings.data(), static_cast<uint32_t>(bindings.size()),
                             params, errors != nullptr ? errors : errors_.buffer());
}

void Stream::copy(const Buffer& source, uint64_t source_offset, const Buffer& target,
                  uint64_t target_offset, uint64_t bytes) {
  if (bytes == 0) {
    return;
  }
  check_process();
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  device_.throw_pending_error();
  check_range(source, source_offset, bytes, "copy");
  check_range(target, target_offset, bytes, "copy");
  if (source.handle == target.handle) {
    raise(ErrorKind::kRuntime, "WebGPU cannot copy within one buffer");
  }
  if (recorder_ != nullptr) [[unlikely]] {
    recorder_->copy(source, source_offset, target, target_offset, bytes);
    if (!recorder_->executes()) {
      return;
    }
  }
  encoder_.copy(source.handle, source_offset, target.handle, target_offset, bytes);
  ++stats_.copies;
  encoder_.count_command();
}

void Stream::clear(const Buffer& target, uint64_t offset, uint64_t bytes) {
  if (bytes == 0) {
    return;
  }
  check_process();
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  device_.throw_pending_error();
  check_range(target, offset, bytes, "clear");
  if (recorder_ != nullptr) [[unlikely]] {
    recorder_->clear(target, offset, bytes);
    if (!recorder_->executes()) {
      return;
    }
  }
  encoder_.clear(target.handle, offset, bytes);
  ++stats_.copies;
  encoder_.count_command();
}

void Stream::upload(const Buffer& target, uint64_t offset, const void* data, uint64_t bytes) {
  if (bytes == 0) {
    return;
  }
  check_process();
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  device_.throw_pending_error();
  check_range(target, offset, (bytes + 3) / 4 * 4, "upload");
  if (recorder_ != nullptr) [[unlikely]] {
    recorder_->upload(target, offset, data, bytes);
    if (!recorder_->executes()) {
      return;
    }
  }
  ++stats_.uploads;
  uploads_.append(target, offset, data, bytes);
}

// The block as a buffer, for a copy of these bytes; null if the host has to copy them.
WGPUBuffer Stream::block_for(HostBlock& block, uint64_t block_offset, const Buffer& buffer,
                             uint64_t offset, uint64_t bytes, HostCopy way) {
  if (recorder_ != nullptr || block_offset % 4 != 0 || offset % 4 != 0) {
    return nullptr;
  }
  return block.buffer(*buffer.context, way);
}

bool Stream::upload_from(const Buffer& target, uint64_t offset, HostBlock& source,
                         uint64_t source_offset, uint64_t bytes) {
  check_process();
  if (bytes < kLeastHostCopy || !HostBlock::may_be_buffer(*target.context)) {
    return false;
  }
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  device_.throw_pending_error();
  check_range(target, offset, (bytes + 3) / 4 * 4, "upload");
  WGPUBuffer block = block_for(source, source_offset, target, offset, bytes, HostCopy::from_host);
  if (block == nullptr) {
    return false;
  }
  const HostBlock::Use use(source, *target.context);
  const uint64_t whole = bytes / 4 * 4;
  encoder_.copy(block, source_offset, target.handle, offset, whole);
  if (whole != bytes) {
    uploads_.append(target, offset + whole, source.data() + source_offset + whole, bytes - whole);
  }
  ++stats_.uploads;
  ++stats_.host_copies;
  return true;
}

bool Stream::read_into(const Buffer& source, uint64_t offset, HostBlock& target,
                       uint64_t target_offset, uint64_t bytes) {
  check_process();
  if (bytes < kLeastHostCopy || !HostBlock::may_be_buffer(*source.context)) {
    return false;
  }
  submit_elsewhere(*this);
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  device_.throw_pending_error();
  check_executing("values cannot be read");
  WGPUBuffer block = block_for(target, target_offset, source, offset, bytes, HostCopy::to_host);
  if (block == nullptr) {
    return false;
  }
  const uint64_t whole = bytes / 4 * 4;
  check_range(source, offset, whole, "read");
  if (target.is_in_use()) {
    // Dawn orders copies by buffers, and the device reads the memory as another one.
    submissions_.wait(encoder_.flush());
  }
  const HostBlock::Use use(target, *source.context);
  encoder_.copy(source.handle, offset, block, target_offset, whole);
  ++stats_.readbacks;
  ++stats_.host_copies;
  // The last bytes are read through a staging buffer. That waits for the copy, and raises errors of
  // kernels.
  const uint64_t last = std::min(whole, bytes - 1);
  readbacks_.read(source, offset + last, target.data() + target_offset + last, bytes - last);
  return true;
}

// ---- Reads

void Stream::check_executing(const char* what) const {
  if (recorder_ != nullptr && !recorder_->executes()) {
    raise(ErrorKind::kRuntime, std::string(what) + " while the commands of the WebGPU device are "
                                                   "recorded and not executed");
  }
}

std::unique_ptr<Readback> Stream::read_async(const Buffer& source, uint64_t offset,
                                             uint64_t bytes) {
  check_process();
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  device_.throw_pending_error();
  check_executing("values cannot be read");
  ++stats_.readbacks;
  return readbacks_.start(source, offset, bytes);
}

void Stream::read(const Buffer& source, uint64_t offset, void* data, uint64_t bytes) {
  check_process();
  submit_elsewhere(*this);
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  device_.throw_pending_error();
  check_executing("values cannot be read");
  ++stats_.readbacks;
  readbacks_.read(source, offset, data, bytes);
}

// ---- Submission

uint64_t Stream::flush() {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  return encoder_.flush();
}

void Stream::flush_if_free() {
  const std::unique_lock<std::recursive_mutex> lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) {
    encoder_.flush();
  }
}

bool Stream::is_complete(uint64_t serial) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  return submissions_.is_complete(serial);
}

void Stream::wait(uint64_t serial) {
  submit_elsewhere(*this);
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  submissions_.wait(serial);
}

void Stream::drain() {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  // Dawn frees a released buffer when it learns that a submission made after the release has
  // finished, so there must be one, if only an empty one. It hands the memory back to the driver
  // one such step later.
  for (int step = 0; step < 2; ++step) {
    encoder_.outside_pass();
    submissions_.wait(encoder_.flush());
    device_.process_events();
  }
}

void Stream::synchronize() {
  submit_elsewhere(*this);
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  submissions_.wait(encoder_.flush());
  device_.process_events();
  device_.throw_pending_error();
  readbacks_.check_errors();
}

// ---- Observation

uint32_t Stream::error_code(const std::string& message, ErrorKind kind) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  return errors_.code_of(message, kind);
}

std::vector<std::pair<ErrorKind, std::string>> Stream::error_messages() const {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  return errors_.messages();
}

std::shared_ptr<Timestamp> Stream::record_timestamp() {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  return device_.caps().timestamps ? timestamps_.record() : nullptr;
}

StreamStats Stream::stats() const {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  StreamStats stats = stats_;
  stats.submits = submissions_.last();
  stats.bind_groups = bind_groups_.created();
  return stats;
}

void Stream::forget(const Buffer* buffer) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  bind_groups_.forget(buffer);
}

void Stream::set_recorder(Recorder* recorder) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (recorder != nullptr && recorder_ != nullptr) {
    raise(ErrorKind::kRuntime, "the commands of this stream are being recorded already");
  }
  recorder_ = recorder;
  observed_ = recorder_ != nullptr || listener_ != nullptr;
}

void Stream::set_listener(DispatchListener* listener) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  listener_ = listener;
  observed_ = recorder_ != nullptr || listener_ != nullptr;
}

} // namespace torch_webgpu
