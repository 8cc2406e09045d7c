// The one ordered stream: everything the device does is appended here, in program order.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/buffer.h"
#include "runtime/error.h"
#include "runtime/pipeline.h"
#include "runtime/staging.h"

namespace torch_webgpu {

class Allocator;
class Device;
class Profiler;

/// A storage binding: the whole buffer (size 0) or a window of it. Window offsets must be multiples
/// of Capabilities::storage_offset_alignment, sizes of 4, both in bytes.
struct Binding {
  const Buffer* buffer = nullptr;
  uint64_t offset = 0;
  uint64_t size = 0;
  bool operator==(const Binding&) const = default;
};

/// Numbers of workgroups.
using Grid = std::array<uint32_t, 3>;

struct StreamStats {
  uint64_t dispatches = 0;
  uint64_t copies = 0; // buffer-to-buffer copies and clears
  uint64_t submits = 0;
  uint64_t uploads = 0;
  uint64_t readbacks = 0;
  uint64_t bind_groups = 0; // created, i.e. cache misses
};

/// A point in the stream, as record_timestamp() took it.
class Timestamp {
public:
  virtual ~Timestamp() = default;
  /// Device time in nanoseconds; waits for the device if it has not come that far.
  virtual uint64_t nanoseconds() = 0;
};

class Stream {
public:
  Stream(Device& device, std::recursive_mutex& mutex);
  ~Stream();

  /// Appends a dispatch. This is the only place that builds bind groups. `params` is copied.
  /// A buffer that is bound writable must appear once only (WebGPU's rule): merge aliases first.
  void dispatch(const Pipeline& pipeline, const Binding* bindings, uint32_t num_bindings,
                const void* params, uint32_t params_bytes, Grid grid);
  template <typename Params>
  void dispatch(const Pipeline& pipeline, std::initializer_list<Binding> bindings,
                const Params& params, Grid grid) {
    static_assert(sizeof(Params) <= kParamsWindow);
    dispatch(pipeline, bindings.begin(), static_cast<uint32_t>(bindings.size()), &params,
             sizeof(Params), grid);
  }

  /// Appends a buffer-to-buffer copy; two different buffers, offsets and size multiples of 4.
  void copy(const Buffer& source, uint64_t source_offset, const Buffer& target,
            uint64_t target_offset, uint64_t bytes);
  /// Appends a zero fill; offset and size multiples of 4.
  void clear(const Buffer& target, uint64_t offset, uint64_t bytes);

  /// Host to device, ordered after everything appended so far. `data` is copied before returning.
  /// offset a multiple of 4; a size that is not writes up to 3 zero bytes behind the data.
  void upload(const Buffer& target, uint64_t offset, const void* data, uint64_t bytes);
  /// Device to host, any offset and size. Flushes and waits.
  void read(const Buffer& source, uint64_t offset, void* data, uint64_t bytes);

  /// A readback under way: started now, awaited later.
  class Readback {
  public:
    virtual ~Readback() = default;
    virtual bool ready() = 0;
    /// Waits if needed and copies the bytes out. Once only. Raises pending errors.
    virtual void wait(void* data) = 0;
  };
  /// Appends the copy, flushes, returns at once.
  std::unique_ptr<Readback> read_async(const Buffer& source, uint64_t offset, uint64_t bytes);

  /// Submits what is open, if anything. Returns the serial of the last submission.
  uint64_t flush();
  /// Whether the submission has finished on the device.
  bool is_complete(uint64_t serial);
  void wait(uint64_t serial);
  /// Waits until the device has finished everything, and has let go of the memory of the buffers
  /// released until now. Raises no errors of kernels.
  void drain();
  /// flush, wait for everything, and raise what went wrong (validation, lost device, index errors).
  void synchronize();

  /// Checks of values: the code a kernel writes to the first error word to say that `message`
  /// happened. The same text gives the same code. Raised by the next synchronize or readback. What
  /// the kernel wrote to the words behind takes the places of {index}, {dim} and {size}.
  uint32_t error_code(const std::string& message, ErrorKind kind = ErrorKind::kIndex);

  /// A device timestamp at this point of the stream; null where the device has no timestamp
  /// queries.
  std::shared_ptr<Timestamp> record_timestamp();

  StreamStats stats() const;
  /// Called for a buffer that is about to go back to the driver.
  void forget(const Buffer* buffer);
  void set_profiler(Profiler* profiler);
  Device& device() { return device_; }

  /// Workgroups for `count` invocations of `workgroup_size`, folded into y where x would pass the
  /// limit. Kernels recover the index as (wid.y * num_workgroups.x + wid.x) * size + lid.
  Grid grid_1d(uint64_t count, uint32_t workgroup_size) const;

private:
  class ReadbackImpl;
  struct BindGroupSlot;
  struct Submission;
  friend class TimestampBlock;

  WGPUBindGroup bind_group(const PipelineLayout& layout, const Binding* bindings, uint32_t count);
  void open_encoder();
  void open_pass();
  void end_pass();
  void count_command();
  uint32_t push_to_ring(const void* data, uint32_t bytes);
  void write_queue(WGPUBuffer target, uint64_t offset, const void* data, uint64_t bytes);
  void retire_finished();
  void throttle(size_t max_in_flight);
  void read_chunk(const Buffer& source, uint64_t offset, void* data, uint64_t bytes);
  std::pair<uint64_t, WGPUBuffer> take_readback_buffer(uint64_t size); // with its size
  WGPUBuffer create_buffer(uint64_t size, uint64_t usage, const char* label);

  using ErrorWords = std::array<uint32_t, kErrorWords>;
  void handle_errors(const ErrorWords& words);

  Device& device_;
  std::recursive_mutex& mutex_;
  WGPUCommandEncoder encoder_ = nullptr;
  WGPUComputePassEncoder pass_ = nullptr;
  const Pipeline* bound_pipeline_ = nullptr;
  uint32_t open_commands_ = 0;
  uint32_t flush_threshold_ = 0;

  UploadStaging staging_;

  // Parameters and small uploads of the open encoder. Written to the GPU in one go right before the
  // submit that uses them; the queue's order keeps that write behind the submits before.
  WGPUBuffer ring_ = nullptr;
  std::vector<uint8_t> ring_host_;
  uint32_t ring_used_ = 0;

  WGPUBuffer errors_ = nullptr;
  bool errors_armed_ = false; // an index-checking dispatch ran since the last look at the words
  std::vector<std::pair<ErrorKind, std::string>> error_messages_;

  std::vector<BindGroupSlot> bind_groups_;
  std::deque<Submission> in_flight_;
  uint64_t submitted_ = 0;
  std::multimap<uint64_t, WGPUBuffer> readback_pool_; // by size
  std::shared_ptr<class TimestampBlock> timestamps_;
  StreamStats stats_;
  Profiler* profiler_ = nullptr;
};

} // namespace torch_webgpu
