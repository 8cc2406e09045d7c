// torch.autocast("webgpu"): the ops that run in the lower precision, those that stay in float32,
// and those that follow their widest input are PyTorch's shared lists.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <optional>
#include <utility>

#include "backend/registration.h"

namespace torch_webgpu {
namespace {

// The macros spell names of at and its policies without their namespaces.
using namespace at;
using namespace at::autocast;

at::Tensor refuse_binary_cross_entropy(const at::Tensor&, const at::Tensor&,
                                       const std::optional<at::Tensor>&, int64_t) {
  TORCH_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to "
      "autocast: their gradient may overflow in lower precision. Use "
      "binary_cross_entropy_with_logits or BCEWithLogitsLoss, which take the sigmoid along.");
}

// Autocast may come first of all: torch.set_autocast_enabled() tells nobody, and a tensor of the
// device need not have memory, such as one that torch.Tensor._make_wrapper_subclass makes.
void register_first(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                    torch::jit::Stack* stack) {
  constexpr c10::DispatchKey kKey = c10::DispatchKey::AutocastPrivateUse1;
  register_operators();
  op.redispatchBoxed(op.hasKernelForDispatchKey(kKey) ? keys : keys.remove(kKey), stack);
}

// The fallback that stands at load, until the kernels are registered. A key has one fallback.
std::optional<torch::Library>& fallback_before_registration() {
  static auto* library =
      new std::optional<torch::Library>(std::in_place, torch::Library::IMPL, "_",
                                        c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  return *library;
}

[[maybe_unused]] const auto& at_load = fallback_before_registration()->fallback(
    torch::CppFunction::makeFromBoxedFunction<&register_first>());

TW_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  fallback_before_registration().reset();
  m.fallback(torch::CppFunction::makeFallthrough());
}

TW_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define TW_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(TW_LOWER_PRECISION)
#undef TW_LOWER_PRECISION
#define TW_FLOAT32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(TW_FLOAT32)
#undef TW_FLOAT32
#define TW_FLOAT32_OUTPUT(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(TW_FLOAT32_OUTPUT)
#undef TW_FLOAT32_OUTPUT
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
#define TW_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(TW_PROMOTE)
#undef TW_PROMOTE
  m.impl("binary_cross_entropy", TORCH_FN(refuse_binary_cross_entropy));
}

} // namespace
} // namespace torch_webgpu
