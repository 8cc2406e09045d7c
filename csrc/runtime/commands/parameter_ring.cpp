#include "runtime/commands/parameter_ring.h"

#include "runtime/api.h"
#include "runtime/device.h"
#include "runtime/pipeline.h"

namespace torch_webgpu {

// The buffer is one window longer than the ring, because a binding at the last offset needs it.
ParameterRing::ParameterRing(Device& device)
    : device_(device),
      buffer_(device.create_buffer(
          kBytes + kParamsWindow,
          WGPUBufferUsage_Uniform | WGPUBufferUsage_CopySrc | WGPUBufferUsage_CopyDst, "ring")),
      host_(kBytes), alignment_(std::max(device.caps().uniform_offset_alignment, 16u)) {}

void ParameterRing::write() {
  if (used_ != 0) {
    device_.api().QueueWriteBuffer(device_.queue(), buffer_, 0, host_.data(), (used_ + 3) / 4 * 4);
    used_ = 0;
  }
}

} // namespace torch_webgpu
