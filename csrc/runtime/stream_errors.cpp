// The errors that kernels find in values: their codes, and the exceptions raised for them.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/api.h"
#include "runtime/error.h"
#include "runtime/stream.h"

namespace torch_webgpu {
namespace {

void replace(std::string& text, std::string_view name, int64_t value) {
  const size_t at = text.find(name);
  if (at != std::string::npos) {
    text.replace(at, name.size(), std::to_string(value));
  }
}

} // namespace

uint32_t Stream::error_code(const std::string& message, ErrorKind kind) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  auto it = std::find_if(error_messages_.begin(), error_messages_.end(), [&](const auto& entry) {
    return entry.first == kind && entry.second == message;
  });
  if (it == error_messages_.end()) {
    it = error_messages_.emplace(it, kind, message);
  }
  return static_cast<uint32_t>(it - error_messages_.begin()) + 1;
}

void Stream::handle_errors(const ErrorWords& words) {
  const uint32_t code = words[0];
  if (code == 0) {
    return;
  }
  const uint32_t zero = 0;
  flush();
  device_.api().QueueWriteBuffer(device_.queue(), errors_, 0, &zero, sizeof(zero));
  if (code > error_messages_.size()) {
    raise(ErrorKind::kIndex, "index out of range");
  }
  auto [kind, message] = error_messages_[code - 1];
  replace(message, "{index}", static_cast<int64_t>(uint64_t{words[2]} << 32 | words[1]));
  replace(message, "{dim}", words[3]);
  replace(message, "{size}", words[4]);
  raise(kind, message);
}

} // namespace torch_webgpu
