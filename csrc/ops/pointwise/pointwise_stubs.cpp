// Gives ATen's DispatchStubs their WebGPU kernels, one per row of rows.yaml.
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

#include "backend/fallback.h"
#include "launch/stub.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/reciprocal_double.h"

namespace torch_webgpu {
namespace {

using at::TensorIteratorBase;
using namespace at::native;

// The row that serves the op for these operands and arguments.
PointwiseOp row_for(const TensorIteratorBase& iter, PointwiseOp op,
                    c10::ArrayRef<c10::Scalar> scalars) {
  const PointwiseRow& own = row(op);
  if (own.for_dtype.empty() && own.for_argument.empty()) {
    return op;
  }
  const auto dtype = native_dtype(iter.common_dtype());
  if (!dtype) {
    return op;
  }
  const bool by_number = own.keeps_numbers && iter.is_cpu_scalar(iter.ntensors() - 1);
  for (const PointwiseForDType& other : own.for_dtype) {
    if (other.dtype == *dtype && !by_number) {
      return other.op;
    }
  }
  for (const PointwiseForArgument& other : own.for_argument) {
    if (!row(other.op).expression(info(*dtype).kind).empty() && scalars[0].equal(other.value)) {
      return other.op;
    }
  }
  return op;
}

// Raises for an argument that the dtype cannot hold. For half types, the argument need only fit the
// wider type that they are computed in, as on CUDA.
template <class Value>
void check_argument(const Value& value, at::ScalarType common) {
  if constexpr (std::is_same_v<Value, c10::Scalar>) {
    const bool is_unsigned = c10::isBarebonesUnsignedType(common);
    // The conversion itself would wrap it: PyTorch does so for uint8, whose results ours equal.
    TORCH_CHECK(!is_unsigned || value.toDouble() >= 0, "value cannot be converted to type ",
                c10::toString(common), " without overflow");
    check_fits(value, is_unsigned ? common : at::toOpMathType(common));
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
    const PointwiseOp actual = row_for(iter, op, scalars);
    if (const auto types = pointwise_types(iter, actual)) {
      if (!row(op).any_argument || at::isIntegralType(iter.common_dtype(), /*includeBool=*/true)) {
        (check_argument(args, iter.common_dtype()), ...);
      }
      const bool takes_scalars = row(actual).num_scalars > 0;
      pointwise(iter, actual, *types,
                takes_scalars ? c10::ArrayRef<c10::Scalar>(scalars) : c10::ArrayRef<c10::Scalar>());
      return;
    }
    fallback_iterator(
        iter, std::string("aten::").append(row(op).name),
        [&](TensorIteratorBase& cpu) { call_on_cpu(stub, static_cast<Iterator&>(cpu), args...); },
        row(op).mixed_dtypes ? IteratorForm::kMixed : IteratorForm::kPointwise);
  }
};

#define TW_REGISTER(op, stub)                                                                      \
  const RegisterStub<decltype(stub)> register_##op(                                                \
      stub, &Kernel<stub, PointwiseOp::op, decltype(stub_function(stub))>::run);
TW_POINTWISE_STUBS(TW_REGISTER)
#undef TW_REGISTER

} // namespace
} // namespace torch_webgpu
