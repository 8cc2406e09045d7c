// Working with ATen's DispatchStubs: registering a kernel, and running the CPU's.
#pragma once

#include <ATen/native/DispatchStub.h>
#include <c10/util/Exception.h>

#include <type_traits>
#include <utility>

namespace torch_webgpu {

/// The function type of a stub: decltype(stub_function(sin_stub)) is void (*)(TensorIteratorBase&).
template <class Result, class Name, class... Args>
auto stub_function(const at::native::DispatchStub<Result (*)(Args...), Name>&)
    -> Result (*)(Args...);

/// Registers a kernel under any stub, also one that is named through a reference.
template <class Stub>
using RegisterStub = at::native::RegisterPRIVATEUSE1Dispatch<std::remove_cvref_t<Stub>>;

/// Runs the stub's portable CPU kernel. Calling the stub itself would need to know with which
/// vector instruction sets libtorch was built.
template <class Stub, class... Args>
void call_on_cpu(const Stub&, Args&&... args) {
  TORCH_INTERNAL_ASSERT(Stub::DEFAULT != nullptr, "this stub has no CPU kernel to fall back on");
  Stub::DEFAULT(std::forward<Args>(args)...);
}

} // namespace torch_webgpu
