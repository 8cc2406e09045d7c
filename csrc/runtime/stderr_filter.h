// Keeps known, useless lines of a library out of the user's terminal.
#pragma once

#include <cstdio>
#include <string>

namespace torch_webgpu {

/// While it exists, what the process writes to stderr is held back; its end writes the lines that
/// do not contain `dropped`. Only one exists at a time; a second one does nothing, as does any
/// under TORCH_WEBGPU_DEBUG=1 and where the redirection fails. For short moments: what is held back
/// is lost if the process dies meanwhile.
class StderrFilter {
public:
  explicit StderrFilter(std::string dropped);
  ~StderrFilter();
  StderrFilter(const StderrFilter&) = delete;
  StderrFilter& operator=(const StderrFilter&) = delete;

private:
  std::string dropped_;
  std::FILE* held_ = nullptr; // what was written meanwhile
  int terminal_ = -1;         // stderr as it was; -1: nothing is filtered
};

} // namespace torch_webgpu
