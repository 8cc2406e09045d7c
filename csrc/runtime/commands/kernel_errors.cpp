#include "runtime/commands/kernel_errors.h"

#include <algorithm>
#include <string_view>

#include "runtime/api.h"
#include "runtime/commands/encoder.h"
#include "runtime/device.h"

namespace torch_webgpu {
namespace {

void replace(std::string& text, std::string_view name, int64_t value) {
  const size_t at = text.find(name);
  if (at != std::string::npos) {
    text.replace(at, name.size(), std::to_string(value));
  }
}

} // namespace

KernelErrors::KernelErrors(Device& device)
    : device_(device),
      buffer_(device.create_buffer(
          sizeof(Words),
          WGPUBufferUsage_Storage | WGPUBufferUsage_CopySrc | WGPUBufferUsage_CopyDst, "errors")) {
  const Words zeros = {};
  device_.api().QueueWriteBuffer(device_.queue(), buffer_, 0, zeros.data(), sizeof(zeros));
}

uint32_t KernelErrors::code_of(const std::string& message, ErrorKind kind) {
  auto it = std::find_if(messages_.begin(), messages_.end(), [&](const auto& entry) {
    return entry.first == kind && entry.second == message;
  });
  if (it == messages_.end()) {
    it = messages_.emplace(it, kind, message);
  }
  return static_cast<uint32_t>(it - messages_.begin()) + 1;
}

void KernelErrors::raise_any(const Words& words, Encoder& encoder) {
  const uint32_t code = words[0];
  if (code == 0) {
    return;
  }
  const uint32_t zero = 0;
  encoder.flush();
  device_.api().QueueWriteBuffer(device_.queue(), buffer_, 0, &zero, sizeof(zero));
  if (code > messages_.size()) {
    raise(ErrorKind::kIndex, "index out of range");
  }
  auto [kind, message] = messages_[code - 1];
  replace(message, "{index}", static_cast<int64_t>(uint64_t{words[2]} << 32 | words[1]));
  replace(message, "{dim}", words[3]);
  replace(message, "{size}", words[4]);
  raise(kind, message);
}

} // namespace torch_webgpu
