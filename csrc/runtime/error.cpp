#include "runtime/error.h"

#include <atomic>

namespace torch_webgpu {
namespace {
std::atomic<ErrorHandler> handler_{nullptr};
}

void set_error_handler(ErrorHandler handler) { handler_.store(handler); }

void raise(ErrorKind kind, const std::string& message) {
  if (ErrorHandler handler = handler_.load()) {
    handler(kind, message);
  }
  throw Error(kind, message);
}

} // namespace torch_webgpu
