// Errors of the runtime. This folder includes no PyTorch header, so it reports a kind and a text.
// The code that embeds it chooses the exception type.
#pragma once

#include <stdexcept>
#include <string>

namespace torch_webgpu {

enum class ErrorKind {
  kRuntime,        // anything without a class of its own: no adapter, lost device, validation error
  kOutOfMemory,    // a buffer could not be created even after the pool gave back its cached ones
  kNotImplemented, // more than this adapter or backend can do
  kIndex,          // a kernel met an index outside its dimension
};

/// Default exception of raise(): carries the kind beside the text.
class Error : public std::runtime_error {
public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

private:
  ErrorKind kind_;
};

/// Must throw. The backend installs one that throws c10's exception classes.
using ErrorHandler = void (*)(ErrorKind kind, const std::string& message);
void set_error_handler(ErrorHandler handler);

/// Throws through the installed handler (Error if there is none).
[[noreturn]] void raise(ErrorKind kind, const std::string& message);

} // namespace torch_webgpu
