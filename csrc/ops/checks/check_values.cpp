#include "ops/checks/check_values.h"

#include <ATen/ops/_assert_async_ops.h>

#include <algorithm>

#include "backend/fallback.h"
#include "backend/registration.h"
#include "kernels/check_range.h"
#include "kernels/check_true.h"
#include "launch/dtypes.h"
#include "launch/halves.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

constexpr uint64_t kMostInvocations = uint64_t{1} << 16; // each looks at several elements

// Launches a kernel that has an operand `x`, and parameters `count` and `error`. `set` sets its
// constants.
template <class Launch, class SetConstants>
void require(const char* op, const Tensor& tensor, const std::string& message, SetConstants&& set) {
  if (tensor.numel() == 0) {
    return;
  }
  // The order of the elements does not matter.
  const Tensor x = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
  if (!is_countable(x)) {
    const Tensor row = x.as_strided({x.numel()}, {1});
    in_halves(row.sizes(), -1, [&](int64_t, int64_t begin, int64_t size) {
      require<Launch>(op, row.narrow(0, begin, size), message, set);
    });
    return;
  }
  Launch launch(op);
  launch.x(x);
  set(launch);
  const auto count = static_cast<uint32_t>(x.numel());
  launch.run({.count = count, .error = launch.error(message, ErrorKind::kRuntime)},
             launch.grid_of(std::min<uint64_t>(count, kMostInvocations)));
}

void require_in(const char* op, kernels::check_range::Range range, const Tensor& tensor,
                const std::string& message) {
  using Launch = kernels::check_range::Launch;
  require<Launch>(op, tensor, message, [&](Launch& launch) { launch.range(range); });
}

void assert_async_msg(const Tensor& self, c10::string_view message) {
  TORCH_CHECK(self.numel() != 0, "Boolean value of Tensor with no values is ambiguous");
  TORCH_CHECK(self.numel() < 2, "Boolean value of Tensor with more than one value is ambiguous");
  if (!native_dtype(self.scalar_type())) {
    call_cpu_fallback<at::_ops::_assert_async_msg>::call(self, message);
    return;
  }
  require_true("_assert_async", self, std::string(message));
}

void assert_async(const Tensor& self) {
  assert_async_msg(self, "Expected Tensor with single nonzero value, but got zero");
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_assert_async", TORCH_FN(assert_async));
  m.impl("_assert_async.msg", TORCH_FN(assert_async_msg));
}

} // namespace

void require_true(const char* op, const Tensor& tensor, const std::string& message) {
  using Launch = kernels::check_true::Launch;
  require<Launch>(op, tensor, message, [](Launch&) {});
}

void require_not_negative(const char* op, const Tensor& tensor, const std::string& message) {
  require_in(op, kernels::check_range::Range::not_negative, tensor, message);
}

void require_probabilities(const char* op, const Tensor& tensor, const std::string& message) {
  if (is_native_float(tensor)) {
    require_in(op, kernels::check_range::Range::probability, tensor, message);
  }
}

} // namespace torch_webgpu
