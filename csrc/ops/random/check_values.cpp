#include "ops/random/check_values.h"

#include <ATen/ops/_assert_async_ops.h>
#include <torch/library.h>

#include <algorithm>

#include "backend/fallback.h"
#include "launch/dtypes.h"
#include "launch/kernel_call.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

constexpr PipelineFamily kFamily = PipelineFamily::kCheckValues;
enum class Condition : uint8_t { kProbability, kTrue, kNotNegative };

// Mirrors Params of check_values.wgsl.
struct Params {
  uint32_t count;
  uint32_t x_offset;
  uint32_t error;
};

void require(const char* op, Condition condition, const Tensor& tensor,
             const std::string& message) {
  if (tensor.numel() == 0) {
    return;
  }
  // The order of the elements is of no matter.
  const Tensor x = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
  TORCH_CHECK_NOT_IMPLEMENTED(x.numel() < int64_t{1} << 31, op, "(): more than 2^31 elements");
  const DType dtype = operand_dtype(op, "x", x.scalar_type());
  KernelCall call(op, "check_values");
  call.add_input("x", x, dtype);
  Params params{};
  params.count = static_cast<uint32_t>(x.numel());
  params.x_offset = element_begin(x);
  params.error = call.check_indices(message, ErrorKind::kRuntime);
  constexpr uint64_t kMostInvocations = uint64_t{1} << 16;
  call.run({kFamily, static_cast<uint64_t>(condition), 0}, params,
           std::min<uint64_t>(params.count, kMostInvocations), [&] {
             KernelCall::Hooks hooks;
             if (condition == Condition::kTrue) {
               hooks = {{"holds", "fn holds(x: x_t) -> bool { return " +
                                      convert(info(dtype).kind, Kind::kBool, "x") + "; }"}};
             }
             if (condition == Condition::kNotNegative) {
               hooks = {{"holds", "fn holds(x: f32) -> bool { return x >= 0.0 && !is_nan_f(x); }"}};
             }
             return hooks;
           });
}

void assert_async_msg(const Tensor& self, c10::string_view message) {
  TORCH_CHECK(self.numel() != 0, "Boolean value of Tensor with no values is ambiguous");
  TORCH_CHECK(self.numel() < 2, "Boolean value of Tensor with more than one value is ambiguous");
  if (!native_dtype(self.scalar_type())) {
    call_cpu_fallback<at::_ops::_assert_async_msg>::call(self, message);
    return;
  }
  require("_assert_async", Condition::kTrue, self, std::string(message));
}

void assert_async(const Tensor& self) {
  assert_async_msg(self, "Expected Tensor with single nonzero value, but got zero");
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_assert_async", TORCH_FN(assert_async));
  m.impl("_assert_async.msg", TORCH_FN(assert_async_msg));
}

} // namespace

void require_true(const char* op, const Tensor& tensor, const std::string& message) {
  require(op, Condition::kTrue, tensor, message);
}

void require_not_negative(const char* op, const Tensor& tensor, const std::string& message) {
  require(op, Condition::kNotNegative, tensor, message);
}

void require_probabilities(const char* op, const Tensor& tensor, const std::string& message) {
  if (is_native_float(tensor)) {
    require(op, Condition::kProbability, tensor, message);
  }
}

} // namespace torch_webgpu
