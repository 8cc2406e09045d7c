#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "runtime/platform.h"

namespace torch_webgpu::platform {

void* load_library(const std::string& path, std::string& why) {
  const std::filesystem::path name(std::u8string(path.begin(), path.end()));
  // With a whole path, the library's own folder is where Windows looks for what it needs.
  const DWORD flags = name.is_absolute() ? LOAD_WITH_ALTERED_SEARCH_PATH : 0;
  HMODULE library = LoadLibraryExW(name.c_str(), nullptr, flags);
  if (library == nullptr) {
    why = std::system_category().message(static_cast<int>(GetLastError()));
  }
  return library;
}

void* find_symbol(void* library, const char* name) {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}

std::string library_of(const void* /*function*/) { return {}; }

void set_environment(const char* name, const std::string& value) { _putenv_s(name, value.c_str()); }

void unset_environment(const char* name) { _putenv_s(name, ""); }

FilteredErrors::FilteredErrors(std::string unwanted) : unwanted_(std::move(unwanted)) {}

FilteredErrors::~FilteredErrors() = default;

void* reserve_addresses(size_t size) {
  return VirtualAlloc(nullptr, size, MEM_RESERVE, PAGE_NOACCESS);
}

void release_addresses(void* address, size_t /*size*/) { VirtualFree(address, 0, MEM_RELEASE); }

Memory main_memory() {
  MEMORYSTATUSEX status{};
  status.dwLength = sizeof(status);
  if (!GlobalMemoryStatusEx(&status)) {
    return {};
  }
  return {status.ullTotalPhys, status.ullAvailPhys};
}

void on_fork(void (* /*child*/)()) {}

void skip_earlier_exit_handlers() {}

} // namespace torch_webgpu::platform
