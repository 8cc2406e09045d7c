// The one ordered stream: everything the device does is appended here, in program order.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/buffer.h"
#include "runtime/commands/bind_group_cache.h"
#include "runtime/commands/command_sink.h"
#include "runtime/commands/encoder.h"
#include "runtime/commands/kernel_errors.h"
#include "runtime/commands/parameter_ring.h"
#include "runtime/commands/readbacks.h"
#include "runtime/commands/staging.h"
#include "runtime/commands/submissions.h"
#include "runtime/commands/timestamp.h"
#include "runtime/commands/uploads.h"
#include "runtime/error.h"
#include "runtime/pipeline.h"

namespace torch_webgpu {

class Device;
class HostBlock;
enum class HostCopy : uint8_t;

struct StreamStats {
  uint64_t dispatches = 0;
  uint64_t copies = 0; // buffer-to-buffer copies and clears
  uint64_t submits = 0;
  uint64_t uploads = 0;
  uint64_t readbacks = 0;
  uint64_t host_copies = 0; // of both, those that the device did itself, from and to host memory
  uint64_t bind_groups = 0; // created, i.e. cache misses
};

/// A dispatch whose bind group is made and whose parameters lie on the device.
struct PreparedDispatch {
  const Pipeline* pipeline = nullptr;
  WGPUBindGroup group = nullptr;
  uint32_t params_offset = 0; // in bytes, in the buffer that the group binds
  Grid grid{};
};

/// Is called around each dispatch that the stream executes.
class DispatchListener {
public:
  virtual ~DispatchListener() = default;
  virtual void begin(const Pipeline& pipeline) = 0;
  virtual void end() = 0;
};

/// Checks and orders commands; its parts (runtime/commands) carry them out under its lock.
class Stream final : public CommandSink {
public:
  using Readback = torch_webgpu::Readback;

  Stream(Device& device, std::recursive_mutex& mutex);

  /// Appends a dispatch; see CommandSink. `params` is copied.
  void dispatch(const Pipeline& pipeline, const Binding* bindings, uint32_t num_bindings,
                const void* params, uint32_t params_bytes, Grid grid) override;
  template <typename Params>
  void dispatch(const Pipeline& pipeline, std::initializer_list<Binding> bindings,
                const Params& params, Grid grid) {
    static_assert(sizeof(Params) <= kParamsWindow);
    dispatch(pipeline, bindings.begin(), static_cast<uint32_t>(bindings.size()), &params,
             sizeof(Params), grid);
  }
  void copy(const Buffer& source, uint64_t source_offset, const Buffer& target,
            uint64_t target_offset, uint64_t bytes) override;
  void clear(const Buffer& target, uint64_t offset, uint64_t bytes) override;
  /// `data` is copied before returning.
  void upload(const Buffer& target, uint64_t offset, const void* data, uint64_t bytes) override;

  /// Appends those dispatches. They were checked when they were recorded. Raises kRuntime while
  /// commands are recorded and not executed.
  void dispatch_prepared(std::span<const PreparedDispatch> dispatches);
  /// A bind group for PreparedDispatch. The caller releases it. `errors`: the buffer whose error
  /// words its kernels write; null: the stream's own buffer.
  WGPUBindGroup create_bind_group(const PipelineLayout& layout, std::span<const Binding> bindings,
                                  WGPUBuffer params, WGPUBuffer errors = nullptr);

  /// upload() that the device carries out itself: the bytes are read later, before the block is out
  /// of use (HostBlock::is_in_use), and submits. Returns false and appends nothing where that
  /// cannot be or does not pay; then upload() does it.
  bool upload_from(const Buffer& target, uint64_t offset, HostBlock& source, uint64_t source_offset,
                   uint64_t bytes);
  /// read() whose bytes the device writes to the block itself. Returns false, and reads nothing,
  /// where that cannot be or does not pay.
  bool read_into(const Buffer& source, uint64_t offset, HostBlock& target, uint64_t target_offset,
                 uint64_t bytes);

  /// Device to host, any offset and size. Flushes and waits.
  void read(const Buffer& source, uint64_t offset, void* data, uint64_t bytes);
  /// Appends the copy, flushes, returns at once.
  std::unique_ptr<Readback> read_async(const Buffer& source, uint64_t offset, uint64_t bytes);

  /// Submits what is open, if anything. Returns the serial of the last submission.
  uint64_t flush();
  /// The same, unless another thread has the stream's lock.
  void flush_if_free();
  /// Whether the submission has finished on the device.
  bool is_complete(uint64_t serial);
  void wait(uint64_t serial);
  /// Waits until the device has finished everything, and has let go of the memory of the buffers
  /// released until now. Raises no errors of kernels.
  void drain();
  /// flush, wait for everything, and raise what went wrong (validation, lost device, index errors).
  void synchronize();

  /// The code that a kernel which checks values writes to the first error word to report `message`.
  /// Equal texts have equal codes. The next synchronize or readback raises the error. The following
  /// error words replace {index}, {dim} and {size} in the message.
  uint32_t error_code(const std::string& message, ErrorKind kind = ErrorKind::kIndex);
  /// The messages of the codes 1, 2, ...
  std::vector<std::pair<ErrorKind, std::string>> error_messages() const;

  /// A device timestamp at this point of the stream; null where the device has no timestamp
  /// queries.
  std::shared_ptr<Timestamp> record_timestamp();

  StreamStats stats() const;
  /// Called for a buffer that is about to go back to the driver.
  void forget(const Buffer* buffer);
  /// Null detaches the recorder. While a recorder that does not execute commands is attached, reads
  /// raise, because there are no results.
  void set_recorder(Recorder* recorder);
  Recorder* recorder() const { return recorder_; }
  /// Null detaches the listener.
  void set_listener(DispatchListener* listener);
  Device& device() { return device_; }

private:
  void check_dispatch(const Pipeline& pipeline, const Binding* bindings, uint32_t num_bindings,
                      uint32_t params_bytes) const;
  void encode(const Pipeline& pipeline, const Binding* bindings, uint32_t num_bindings,
              const void* params, uint32_t params_bytes, Grid grid);
  void dispatch_observed(const Pipeline& pipeline, const Binding* bindings, uint32_t num_bindings,
                         const void* params, uint32_t params_bytes, Grid grid);
  void check_executing(const char* what) const;
  WGPUBuffer block_for(HostBlock& block, uint64_t block_offset, const Buffer& buffer,
                       uint64_t offset, uint64_t bytes, HostCopy way);

  Device& device_;
  std::recursive_mutex& mutex_;
  ParameterRing ring_;
  UploadStaging staging_;
  Submissions submissions_;
  Encoder encoder_;
  KernelErrors errors_;
  BindGroupCache bind_groups_;
  Uploads uploads_;
  Readbacks readbacks_;
  Timestamps timestamps_;
  StreamStats stats_;
  Recorder* recorder_ = nullptr;
  DispatchListener* listener_ = nullptr;
  bool observed_ = false; // whether there is a recorder or a listener
};

} // namespace torch_webgpu
