#include "runtime/stderr_filter.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace torch_webgpu {
namespace {

std::atomic<bool> active_{false};

void write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written <= 0) {
      return; // the terminal is gone
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
}

} // namespace

StderrFilter::StderrFilter(std::string dropped) : dropped_(std::move(dropped)) {
  const char* debug = std::getenv("TORCH_WEBGPU_DEBUG");
  if ((debug != nullptr && std::strcmp(debug, "1") == 0) || active_.exchange(true)) {
    return;
  }
  std::fflush(stderr);
  held_ = std::tmpfile();
  terminal_ = held_ != nullptr ? fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0) : -1;
  if (terminal_ >= 0 && dup2(fileno(held_), STDERR_FILENO) < 0) {
    close(terminal_);
    terminal_ = -1;
  }
  if (terminal_ < 0) {
    if (held_ != nullptr) {
      std::fclose(held_);
    }
    active_.store(false);
  }
}

StderrFilter::~StderrFilter() {
  if (terminal_ < 0) {
    return;
  }
  std::fflush(stderr);
  dup2(terminal_, STDERR_FILENO);
  std::rewind(held_);
  std::string line;
  for (int character = std::fgetc(held_);; character = std::fgetc(held_)) {
    if (character != EOF) {
      line += static_cast<char>(character);
    }
    if (character == '\n' || character == EOF) {
      if (line.find(dropped_) == std::string::npos) {
        write_all(terminal_, line);
      }
      line.clear();
    }
    if (character == EOF) {
      break;
    }
  }
  std::fclose(held_);
  close(terminal_);
  active_.store(false);
}

} // namespace torch_webgpu
