// When the kernels become known to PyTorch's dispatcher: with the first use of the device, not when
// the library is loaded, because registering some 2,000 of them is half of what `import torch`
// would take for this package.
#pragma once

#include <c10/core/DispatchKey.h>
#include <c10/macros/Macros.h>
#include <torch/library.h>

#include <cstdint>
#include <utility>

namespace torch_webgpu {

/// Registers the kernels of all blocks if that has not been done. Any thread may call it: when it
/// returns, the dispatcher has them all.
///
/// Whatever leads to a tensor of the device calls it: operators that need no memory of the device,
/// which have kernels for this when the library is loaded; the allocator; torch.autocast, and
/// autocast's fallback.
void register_operators();

/// What a block registers with, as it would with a torch::Library. A kernel that a program has
/// registered before the device's first use stays in force, as one that is registered later would.
class Operators {
public:
  Operators(torch::Library& library, const char* space, c10::DispatchKey key)
      : library_(library), space_(space), key_(key) {}

  template <class Name, class Function>
  void impl(Name name, Function&& function) {
    if (!is_taken(name)) {
      library_.impl(name, std::forward<Function>(function));
    }
  }

  void fallback(torch::CppFunction&& function) { library_.fallback(std::move(function)); }

private:
  bool is_taken(const char* name) const;

  torch::Library& library_;
  const char* space_;
  c10::DispatchKey key_;
};

/// A list of kernels that waits for register_operators.
class OperatorBlock {
public:
  using Fill = void (*)(Operators& operators);

  OperatorBlock(Fill fill, const char* space, c10::DispatchKey key, const char* file,
                uint32_t line);

private:
  friend void register_operators();

  Fill fill_;
  const char* space_;
  c10::DispatchKey key_;
  const char* file_;
  uint32_t line_;
  OperatorBlock* next_ = nullptr;
};

} // namespace torch_webgpu

/// TORCH_LIBRARY_IMPL for the kernels of the device:
///   TW_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("equal", TORCH_FN(equal)); }
#define TW_LIBRARY_IMPL(space, key, m) TW_LIBRARY_IMPL_NAMED(space, key, m, C10_UID)
#define TW_LIBRARY_IMPL_NAMED(space, key, m, id)                                                   \
  static void C10_CONCATENATE(tw_fill_, id)(::torch_webgpu::Operators & m);                        \
  static const ::torch_webgpu::OperatorBlock C10_CONCATENATE(tw_block_, id)(                       \
      &C10_CONCATENATE(tw_fill_, id), #space, c10::DispatchKey::key, __FILE__, __LINE__);          \
  static void C10_CONCATENATE(tw_fill_, id)(::torch_webgpu::Operators & m)
