// Gives ATen's DispatchStubs their WebGPU kernels, one per row of pointwise.inc.
#include <ATen/OpMathType.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/Activation.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/Fill.h>
#include <ATen/native/Lerp.h>
#include <ATen/native/LinearAlgebra.h>
#include <ATen/native/PointwiseOps.h>
#include <ATen/native/Pow.h>
#include <ATen/native/TensorCompare.h>
#include <ATen/native/UnaryOps.h>

#include <string>
#include <type_traits>
#include <utility>

#include "backend/fallback.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/reciprocal_double.h"
#include "launch/stub.h"

namespace torch_webgpu {
namespace {

using at::TensorIteratorBase;
using namespace at::native;

// These two stubs lack the suffix that all others have.
auto& lerp_kernel_tensor_weight_stub = lerp_kernel_tensor_weight;
auto& lerp_kernel_scalar_weight_stub = lerp_kernel_scalar_weight;

PointwiseOp for_bool(PointwiseOp op, at::ScalarType type) {
  // The complement of a truth value is not that of its integer.
  return type == at::kBool && op == PointwiseOp::bitwise_not ? PointwiseOp::logical_not : op;
}

// Powers with rows of their own: much quicker than the general one, and without its rounding.
PointwiseOp power(const TensorIteratorBase& iter, const c10::Scalar& exponent) {
  static constexpr std::pair<double, PointwiseOp> rows[] = {
      {2, PointwiseOp::pow_square},  {3, PointwiseOp::pow_cube},
      {0.5, PointwiseOp::sqrt},      {-0.5, PointwiseOp::rsqrt},
      {-1, PointwiseOp::reciprocal}, {-2, PointwiseOp::pow_inverse_square},
  };
  const at::ScalarType type = iter.common_dtype();
  if (at::isFloatingType(type) || at::isComplexType(type)) {
    for (const auto& [special, op] : rows) {
      if (exponent.equal(special)) {
        return op;
      }
    }
  }
  return PointwiseOp::pow_tensor_scalar;
}

// Where the float32 in which halves are computed would show: the next number is one of the dtype,
// and a quotient is rounded to it before it is cut.
constexpr PointwiseOp for_half(PointwiseOp op, at::ScalarType type) {
  struct Row {
    PointwiseOp op, f16, bf16;
  };
  constexpr Row rows[] = {
      {PointwiseOp::nextafter, PointwiseOp::nextafter_f16, PointwiseOp::nextafter_bf16},
      {PointwiseOp::div_trunc, PointwiseOp::div_trunc_f16, PointwiseOp::div_trunc_bf16},
  };
  for (const Row& row : rows) {
    if (row.op == op && (type == at::kHalf || type == at::kBFloat16)) {
      return type == at::kHalf ? row.f16 : row.bf16;
    }
  }
  return op;
}

// The dtypes that halves are computed in may hold what a half does not, as on CUDA.
template <class Value>
void check_argument(const Value& value, at::ScalarType common) {
  if constexpr (std::is_same_v<Value, c10::Scalar>) {
    check_fits(value, at::toOpMathType(common));
  }
}

// A kernel with the stub's signature: the iterator, then scalars of any type.
template <auto& stub, PointwiseOp op, class Function>
struct Kernel;

template <auto& stub, PointwiseOp op, class Iterator, class... Args>
struct Kernel<stub, op, void (*)(Iterator&, Args...)> {
  static void run(Iterator& iter, Args... args) {
    if constexpr (op == PointwiseOp::reciprocal) {
      if (iter.common_dtype() == at::kDouble && reciprocal_double(iter)) {
        return;
      }
    }
    const std::array<c10::Scalar, sizeof...(Args)> scalars = {c10::Scalar(args)...};
    PointwiseOp actual = for_bool(op, iter.dtype(0));
    if constexpr (op == PointwiseOp::pow_tensor_scalar) {
      actual = power(iter, scalars[0]);
    } else if constexpr (for_half(op, at::kHalf) != op) {
      // By a number the CPU and CUDA divide in float32.
      if (op != PointwiseOp::div_trunc || !iter.is_cpu_scalar(2)) {
        actual = for_half(op, iter.common_dtype());
      }
    }
    if (const auto types = pointwise_types(iter, actual)) {
      // The exponent of a floating point power may be any number.
      if (op != PointwiseOp::pow_tensor_scalar ||
          at::isIntegralType(iter.common_dtype(), /*includeBool=*/true)) {
        (check_argument(args, iter.common_dtype()), ...);
      }
      pointwise(iter, actual, *types, actual == op ? scalars : c10::ArrayRef<c10::Scalar>());
      return;
    }
    fallback_iterator(
        iter, std::string("aten::").append(row(op).name),
        [&](TensorIteratorBase& cpu) { call_on_cpu(stub, static_cast<Iterator&>(cpu), args...); },
        op == PointwiseOp::ldexp ? IteratorForm::kMixed : IteratorForm::kPointwise);
  }
};

#define TW_REGISTER(name, ...)                                                                     \
  const RegisterStub<decltype(name##_stub)> register_##name(                                       \
      name##_stub,                                                                                 \
      &Kernel<name##_stub, PointwiseOp::name, decltype(stub_function(name##_stub))>::run);
#define TW_UNARY TW_REGISTER
#define TW_BINARY TW_REGISTER
#define TW_TERNARY TW_REGISTER
#define TW_VARIANT(...)
#include "ops/pointwise/pointwise.inc"
#undef TW_UNARY
#undef TW_BINARY
#undef TW_TERNARY
#undef TW_VARIANT
#undef TW_REGISTER

} // namespace
} // namespace torch_webgpu
