#include "backend/registration.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace torch_webgpu {
namespace {

// Blocks are static objects of other files, whose constructors may run before those of this one.
constinit OperatorBlock* first_ = nullptr;
constinit OperatorBlock** end_ = &first_;

std::mutex mutex_;
constinit std::atomic<bool> done_{false};

c10::OperatorName full_name(const char* space, const std::string& name) {
  const size_t dot = name.find('.');
  const std::string base = name.substr(0, dot);
  const bool has_space = base.find("::") != std::string::npos;
  return {has_space ? base : std::string(space) + "::" + base,
          dot == std::string::npos ? "" : name.substr(dot + 1)};
}

} // namespace

OperatorBlock::OperatorBlock(Fill fill, const char* space, c10::DispatchKey key, const char* file,
                             uint32_t line)
    : fill_(fill), space_(space), key_(key), file_(file), line_(line) {
  *end_ = this;
  end_ = &next_;
}

bool Operators::is_taken(const char* name) const {
  const auto found = c10::Dispatcher::singleton().findOp(full_name(space_, name));
  return found && found->hasKernelForDispatchKey(key_);
}

void register_operators() {
  if (done_.load(std::memory_order_acquire)) [[likely]] {
    return;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (done_.load(std::memory_order_relaxed)) {
    return;
  }
  // A torch::Library takes its kernels back when it is destroyed. That is right after an exception
  // here, and wrong at the end of the process, when other threads may still run.
  std::vector<torch::Library> made;
  for (const OperatorBlock* block = first_; block != nullptr; block = block->next_) {
    made.emplace_back(torch::Library::IMPL, block->space_, block->key_, block->file_, block->line_);
    Operators operators(made.back(), block->space_, block->key_);
    block->fill_(operators);
  }
  static auto* kept = new std::vector<torch::Library>;
  *kept = std::move(made);
  done_.store(true, std::memory_order_release);
}

} // namespace torch_webgpu
