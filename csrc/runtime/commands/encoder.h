// The command buffer that is being made.
#pragma once

#include <chrono>
#include <cstdint>

#include "runtime/api.h"
#include "runtime/commands/command_sink.h"
#include "runtime/commands/parameter_ring.h"
#include "runtime/commands/staging.h"
#include "runtime/commands/submissions.h"
#include "runtime/device.h"
#include "runtime/pipeline.h"

namespace torch_webgpu {

/// Appends commands to a command buffer, and submits it together with the host memory that its
/// commands read: the parameter ring and the staged uploads.
class Encoder {
public:
  Encoder(Device& device, ParameterRing& ring, UploadStaging& staging, Submissions& submissions)
      : device_(device), ring_(ring), staging_(staging), submissions_(submissions) {}

  /// Whether commands wait to be submitted.
  bool is_open() const { return encoder_ != nullptr; }

  /// Makes room in the ring. May submit what is open.
  void reserve_parameters(uint32_t bytes) {
    if (!ring_.has_room(bytes)) {
      flush();
    }
  }
  void dispatch(const Pipeline& pipeline, WGPUBindGroup group, uint32_t params_offset, Grid grid) {
    open_pass();
    const Api& api = device_.api();
    if (bound_pipeline_ != pipeline.serial) {
      api.ComputePassEncoderSetPipeline(pass_, pipeline.handle);
      bound_pipeline_ = pipeline.serial;
    }
    api.ComputePassEncoderSetBindGroup(pass_, 0, group, 1, &params_offset);
    api.ComputePassEncoderDispatchWorkgroups(pass_, grid[0], grid[1], grid[2]);
  }
  void copy(WGPUBuffer source, uint64_t source_offset, WGPUBuffer target, uint64_t target_offset,
            uint64_t bytes) {
    device_.api().CommandEncoderCopyBufferToBuffer(outside_pass(), source, source_offset, target,
                                                   target_offset, bytes);
  }
  void clear(WGPUBuffer target, uint64_t offset, uint64_t bytes) {
    device_.api().CommandEncoderClearBuffer(outside_pass(), target, offset, bytes);
  }
  /// The open command encoder, for commands that may not stand in a compute pass.
  WGPUCommandEncoder outside_pass() {
    end_pass();
    open();
    return encoder_;
  }

  /// To be called after each command: submits once there are enough of them, or once they have
  /// waited for long while the device is idle.
  void count_command() {
    if (++open_commands_ >= next_look_) {
      flush_if_due();
    }
  }
  /// Submits what is open, if anything. Returns the serial of the last submission.
  uint64_t flush();

private:
  using Clock = std::chrono::steady_clock;

  void open();
  void flush_if_due();
  void open_pass() {
    if (pass_ == nullptr) {
      open();
      pass_ = device_.api().CommandEncoderBeginComputePass(encoder_, nullptr);
      bound_pipeline_ = 0;
    }
  }
  void end_pass();

  Device& device_;
  ParameterRing& ring_;
  UploadStaging& staging_;
  Submissions& submissions_;
  WGPUCommandEncoder encoder_ = nullptr;
  WGPUComputePassEncoder pass_ = nullptr;
  uint64_t bound_pipeline_ = 0; // Pipeline::serial; an address could be reused by another
  uint32_t open_commands_ = 0;
  uint32_t next_look_ = 0; // at this number of open commands flush_if_due() is called
  uint32_t flush_threshold_ = 0;
  Clock::time_point next_idle_check_;
};

} // namespace torch_webgpu
