// A tensor of the device and its counterpart in host memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/context.h"
#include "runtime/stream.h"

namespace torch_webgpu {

/// What a collective does with a tensor.
enum class Access { kNone, kRead, kWrite, kReadWrite };

/// For a tensor of the CPU the counterpart is the tensor itself, and nothing is copied. That of a
/// COO tensor is one, of indices and values that are staged each.
class StagedTensor {
public:
  /// Appends the copy to host memory, if the tensor is read, to the device's stream. Does not wait.
  /// The values are those at this point of the stream; the tensor may be overwritten afterwards.
  /// `keeps_strides`: for what the CPU's backend refuses to do with a tensor that is not
  /// contiguous. Such a tensor's values are not moved. Raises RuntimeError for a tensor that is
  /// neither on webgpu nor on the CPU, and for layouts that no collective takes.
  StagedTensor(at::Tensor tensor, Access access, bool keeps_strides = false);

  /// Has the tensor's sizes and dtype, and its strides if the elements fill a range of memory or if
  /// they are to be kept.
  const at::Tensor& host() const { return host_; }
  /// Waits until host() has the tensor's values. Other threads can use the device meanwhile. Then
  /// raises what went wrong on the device, such as an index that a kernel found out of range.
  void await();
  /// Whether the tensor's device is lost, and its values with it.
  bool is_lost() const;
  /// Appends the upload of host() to the device's stream, if the tensor is written. `reduced`: the
  /// values are sums and the like.
  void write_back(bool reduced);

private:
  struct Part {
    std::unique_ptr<Readback> readback;
    uint64_t offset = 0; // bytes
  };

  Context& context() const;
  void stage_parts_of_coo();
  void write_back_coo();

  at::Tensor tensor_;
  at::Tensor host_;
  Access access_;
  bool packed_ = false; // host_ has another layout than the tensor's memory
  std::vector<Part> parts_;
  std::vector<StagedTensor> of_coo_; // indices and values
};

} // namespace torch_webgpu
