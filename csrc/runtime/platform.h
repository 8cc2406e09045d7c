// What operating systems differ in. No other file of csrc includes a header of one.
// platform_posix.cpp is for Linux and macOS, platform_windows.cpp for Windows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace torch_webgpu::platform {

/// Loads a shared library, whose symbols other libraries do not see: two WebGPU libraries may be in
/// one process. It is never unloaded. nullptr, and the reason in `why`, if that fails.
void* load_library(const std::string& path, std::string& why);

/// nullptr if the library has no such symbol.
void* find_symbol(void* library, const char* name);

/// The path of the library, or program, that holds a function. Empty where the system does not
/// tell.
std::string library_of(const void* function);

/// Environment variables of this process. No other thread may read one meanwhile.
void set_environment(const char* name, const std::string& value);
void unset_environment(const char* name);

/// What is written to standard error while it lives, by all threads, is kept, and written there
/// when it goes, but for the lines that contain `unwanted`. Nothing is kept where the system cannot
/// do it.
class FilteredErrors {
public:
  explicit FilteredErrors(std::string unwanted);
  ~FilteredErrors();
  FilteredErrors(const FilteredErrors&) = delete;
  FilteredErrors& operator=(const FilteredErrors&) = delete;

private:
  const std::string unwanted_;
  [[maybe_unused]] int before_ = -1; // file descriptors, where the system has such
  [[maybe_unused]] int kept_ = -1;
};

/// `size` bytes of addresses that nothing else gets and that hold no memory: an access ends the
/// process. nullptr if none are left.
void* reserve_addresses(size_t size);

/// All that one call of reserve_addresses returned.
void release_addresses(void* address, size_t size);

/// The machine's main memory in bytes; both 0 where the system does not tell.
struct Memory {
  uint64_t total = 0;
  uint64_t available = 0; // without swapping; the same as total where the system does not tell
};
Memory main_memory();

/// Has each child that a fork makes from now on run `child`. Nothing where processes do not fork.
void on_fork(void (*child)());

/// From the process's exit on, leaves out the destructors that libraries have registered before.
/// Buffers of standard output are written. Nothing where the C library cannot do it.
void skip_earlier_exit_handlers();

} // namespace torch_webgpu::platform
