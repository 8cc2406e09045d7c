// torch.autocast("webgpu"): the ops that run in the lower precision, those that stay in float32,
// and those that follow their widest input are PyTorch's shared lists.
#include <ATen/autocast_mode.h>

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

TW_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

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
