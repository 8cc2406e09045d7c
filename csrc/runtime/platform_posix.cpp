#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "runtime/platform.h"

namespace torch_webgpu::platform {

void* load_library(const std::string& path, std::string& why) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    why = reason != nullptr ? reason : "unknown error";
  }
  return library;
}

void* find_symbol(void* library, const char* name) { return dlsym(library, name); }

std::string library_of(const void* function) {
  Dl_info info{};
  return dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

void set_environment(const char* name, const std::string& value) {
  setenv(name, value.c_str(), /*overwrite=*/1);
}

void unset_environment(const char* name) { unsetenv(name); }

FilteredErrors::FilteredErrors(std::string unwanted) : unwanted_(std::move(unwanted)) {
  std::fflush(stderr);
  before_ = dup(STDERR_FILENO);
  char path[] = "/tmp/torch_webgpu_XXXXXX";
  kept_ = before_ >= 0 ? mkstemp(path) : -1;
  if (kept_ >= 0) {
    unlink(path);
    dup2(kept_, STDERR_FILENO);
  }
}

FilteredErrors::~FilteredErrors() {
  if (kept_ < 0) {
    if (before_ >= 0) {
      close(before_);
    }
    return;
  }
  std::fflush(stderr);
  dup2(before_, STDERR_FILENO);
  close(before_);
  lseek(kept_, 0, SEEK_SET);
  if (std::FILE* file = fdopen(kept_, "r"); file != nullptr) {
    char* line = nullptr;
    size_t size = 0;
    while (getline(&line, &size, file) >= 0) {
      if (std::string(line).find(unwanted_) == std::string::npos) {
        std::fputs(line, stderr);
      }
    }
    std::free(line);
    std::fclose(file);
  } else {
    close(kept_);
  }
}

void* reserve_addresses(size_t size) {
  void* address =
      mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return address == MAP_FAILED ? nullptr : address;
}

void release_addresses(void* address, size_t size) { munmap(address, size); }

Memory main_memory() {
  Memory memory;
  // Linux: free pages alone would leave out the cache of files, which is given up on demand.
  std::ifstream file("/proc/meminfo");
  std::string name;
  uint64_t kilobytes = 0;
  for (std::string unit; file >> name >> kilobytes; std::getline(file, unit)) {
    if (name == "MemTotal:") {
      memory.total = kilobytes << 10;
    } else if (name == "MemAvailable:") {
      memory.available = kilobytes << 10;
      return memory;
    }
  }
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0) {
    memory.total = static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes);
    memory.available = memory.total;
  }
  return memory;
}

void on_fork(void (*child)()) { pthread_atfork(nullptr, nullptr, child); }

void skip_earlier_exit_handlers() {
#ifdef __GLIBC__
  on_exit(
      [](int status, void*) {
        std::fflush(nullptr);
        _exit(status);
      },
      nullptr);
#endif
}

} // namespace torch_webgpu::platform
