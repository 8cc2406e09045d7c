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

// The operators that may come first of all: those that make a tensor of a device alone, and those
// that make a view of a tensor or change its sizes, which may have no memory, as one has not that
// torch.Tensor._make_wrapper_subclass makes. Other such operators have kernels of PyTorch's, which
// call these. tests/python/test_first_use.py compares the list with PyTorch's operators.
constexpr const char* kFirst[] = {
    "_efficientzerotensor",
    "_empty_affine_quantized",
    "_make_dep_token",
    "_nested_view_from_buffer",
    "_reshape_alias",
    "as_strided",
    "empty.memory_format",
    "empty_strided",
    "from_file",
    "is_set_to",
    "resize_",
    "set_",
    "set_.source_Storage",
    "set_.source_Storage_storage_offset",
    "set_.source_Tensor",
    "tril_indices",
    "triu_indices",
    "unfold",
    "view",
    "view_as_complex",
    "view_as_real",
};

// Holds kernels for them, which register the device's. A fallback of the key would do for any
// operator, but PyTorch goes through its 3,500 operators to register one: 3 to 5 ms of
// `import torch`, which are now taken by the first use.
std::optional<torch::Library> kernels_before_registration() {
  torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__,
                         __LINE__);
  for (const char* name : kFirst) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&without_kernel>());
  }
  return library;
}

auto& before_registration_ =
    *new std::optional<torch::Library>(kernels_before_registration()); // never destroyed

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
  try {
    // The fallback comes first. An operator of kFirst has no kernel for a moment below: a thread
    // that calls it then gets the fallback, which waits for this function.
    made.emplace_back(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
    made.back().fallback(torch::CppFunction::makeFromBoxedFunction<&without_kernel>());
    before_registration_.reset();
    for (const OperatorBlock* block = first_; block != nullptr; block = block->next_) {
      made.emplace_back(torch::Library::IMPL, block->space_, block->key_, block->file_,
                        block->line_);
      Operators operators(made.back(), block->space_, block->key_);
      block->fill_(operators);
    }
  } catch (...) {
    made.clear();
    before_registration_ = kernels_before_registration(); // the next use tries again
    throw;
  }
  static auto* kept = new std::vector<torch::Library>;
  *kept = std::move(made);
  done_.store(true, std::memory_order_release);
}

} // namespace torch_webgpu
