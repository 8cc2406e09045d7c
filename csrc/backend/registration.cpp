#include "backend/registration.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/fallback.h"

namespace torch_webgpu {
namespace {

// Blocks are static objects of other files, whose constructors may run before those of this one.
constinit OperatorBlock* first_ = nullptr;
constinit OperatorBlock** end_ = &first_;

// The operators that make a tensor of a device alone, and for which PyTorch has no kernel that
// composes others: tests/python/test_first_use.py compares the list with PyTorch's.
constexpr const char* kFactories[] = {
    "_efficientzerotensor", "_empty_affine_quantized",
    "_make_dep_token",      "empty.memory_format",
    "empty_strided",        "from_file",
    "tril_indices",         "triu_indices",
};

// Their kernels at load, until those of the device are registered. A fallback of the key would do
// for any operator, but PyTorch goes through its 3,500 operators to register one, which took a
// quarter of the time that `import torch_webgpu` did.
std::optional<torch::Library>& factories_before_registration() {
  static auto* library = [] {
    auto* made =
        new std::optional<torch::Library>(std::in_place, torch::Library::IMPL, "aten",
                                          c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
    for (const char* name : kFactories) {
      (*made)->impl(name, torch::CppFunction::makeFromBoxedFunction<&without_kernel>());
    }
    return made;
  }();
  return *library;
}

[[maybe_unused]] const auto& at_load_ = factories_before_registration();

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
  // First, so that other threads find it, and wait for the rest in it, where a factory's kernel of
  // the time before is gone and the new one is not there yet.
  made.emplace_back(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  made.back().fallback(torch::CppFunction::makeFromBoxedFunction<&without_kernel>());
  factories_before_registration().reset();
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
