// The CPU fallback for ops without a kernel: counted, with one warning per op, or refused.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/CPUFallback.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace torch_webgpu {

enum class FallbackMode { kWarn, kError, kSilent };

/// Starts as TORCH_WEBGPU_FALLBACK says: warn (default), error or silent.
FallbackMode fallback_mode();
void set_fallback_mode(FallbackMode mode);

/// How often each op ran on the CPU since the start or the last reset.
std::map<std::string, uint64_t> fallback_counts();
void reset_fallback_counts();

/// Counts one fallback of `op` ("aten::sin") and warns the first time; raises NotImplementedError
/// in error mode. `reason` completes "there is no kernel ...", e.g. "for float64"; it may be empty.
void note_fallback(std::string_view op, std::string_view reason = {});
/// The same, for tensors of a dtype without a kernel.
void note_fallback(std::string_view op, at::ScalarType dtype);

/// What the dispatcher calls for an operator that has no kernel for the device, be it only because
/// the kernels are not registered yet: registers them and calls the operator's kernel, or runs the
/// operator on the CPU.
void without_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                    torch::jit::Stack* stack);

/// Boxed fallback of a whole op: copies its tensors to the CPU, runs it, copies results back.
void cpu_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// The same for a kernel that meets arguments it cannot take (float64, say), with its own
/// arguments:
///   return call_cpu_fallback<at::_ops::index_select>::call(self, dim, index);
template <class Op>
using call_cpu_fallback = at::native::call_fallback_fn<&cpu_fallback, Op>;
template <class Op>
using call_cpu_fallback_symint = at::native::call_fallback_fn_symint<&cpu_fallback, Op>;

/// The same for a TensorIterator kernel: runs `kernel` on an iterator over CPU copies of the
/// operands and copies the outputs back. For a stub, where PyTorch's CPU kernel is the fallback:
///   if (!native(iter.common_dtype())) {
///     return fallback_iterator(iter, "aten::sin", [](at::TensorIteratorBase& cpu) {
///       at::native::sin_stub(at::kCPU, cpu);
///     });
///   }
/// `form` says what cannot be read off the iterator.
enum class IteratorForm : uint8_t {
  kPointwise,
  kMixed,     // inputs have different dtypes (ldexp), but common_dtype() is the first one's
  kReduction, // over a single element an iterator has the form of a pointwise operator's
};
void fallback_iterator(at::TensorIteratorBase& iter, std::string_view op,
                       c10::function_ref<void(at::TensorIteratorBase&)> kernel,
                       IteratorForm form = IteratorForm::kPointwise);

} // namespace torch_webgpu
