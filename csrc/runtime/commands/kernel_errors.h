// The errors that kernels find in values: their codes, and the exceptions raised for them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/error.h"
#include "runtime/handles.h"
#include "runtime/pipeline.h"

namespace torch_webgpu {

class Device;
class Encoder;

/// A kernel that checks values writes a code, and details, to the error words of the device. They
/// are read with the next readback after such a dispatch.
class KernelErrors {
public:
  using Words = std::array<uint32_t, kErrorWords>;

  explicit KernelErrors(Device& device);

  /// The code for `message`; see Stream::error_code.
  uint32_t code_of(const std::string& message, ErrorKind kind);
  /// The messages of the codes 1, 2, ...
  const std::vector<std::pair<ErrorKind, std::string>>& messages() const { return messages_; }
  /// The error words on the device.
  WGPUBuffer buffer() const { return buffer_; }
  /// Says whether the dispatch that was appended may write the words.
  void arm(bool checks) { armed_ |= checks; }
  /// Whether a dispatch since the last disarm() may have written the words.
  bool armed() const { return armed_; }
  void disarm() { armed_ = false; }
  /// Raises the error that words read from the device stand for, if any, and clears them there.
  void raise_any(const Words& words, Encoder& encoder);

private:
  Device& device_;
  WGPUBuffer buffer_ = nullptr;
  bool armed_ = false;
  std::vector<std::pair<ErrorKind, std::string>> messages_;
};

} // namespace torch_webgpu
