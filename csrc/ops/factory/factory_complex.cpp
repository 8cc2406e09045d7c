// Complex numbers from real ones, and nan_to_num: stubs that do not fit the pattern of
// pointwise_stubs.cpp.
#include <ATen/TensorIterator.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/native/UnaryOps.h>

#include <limits>

#include "backend/fallback.h"
#include "launch/stub.h"
#include "ops/pointwise/pointwise.h"

namespace torch_webgpu {
namespace {

using at::Scalar;
using at::TensorIterator;
using at::native::complex_stub;
using at::native::nan_to_num_stub;
using at::native::polar_stub;

void complex(TensorIterator& iter) {
  if (iter.dtype(0) == at::kComplexFloat) {
    return pointwise(iter, PointwiseOp::make_complex,
                     {DType::kC64, {DType::kC64, DType::kF32, DType::kF32}});
  }
  fallback_iterator(iter, "aten::complex", [](at::TensorIteratorBase& cpu) {
    call_on_cpu(complex_stub, static_cast<TensorIterator&>(cpu));
  });
}

void polar(TensorIterator& iter) {
  if (iter.dtype(0) == at::kComplexFloat) {
    return pointwise(iter, PointwiseOp::make_polar,
                     {DType::kC64, {DType::kC64, DType::kF32, DType::kF32}});
  }
  fallback_iterator(iter, "aten::polar", [](at::TensorIteratorBase& cpu) {
    call_on_cpu(polar_stub, static_cast<TensorIterator&>(cpu));
  });
}

void nan_to_num(at::TensorIteratorBase& iter, std::optional<double> nan,
                std::optional<double> posinf, std::optional<double> neginf) {
  const auto types = pointwise_types(iter, PointwiseOp::nan_to_num);
  if (!types) {
    return fallback_iterator(iter, "aten::nan_to_num", [&](at::TensorIteratorBase& cpu) {
      call_on_cpu(nan_to_num_stub, cpu, nan, posinf, neginf);
    });
  }
  const double largest = iter.dtype(0) == at::kHalf ? 65504.0
                         : iter.dtype(0) == at::kBFloat16
                             ? static_cast<double>(std::numeric_limits<at::BFloat16>::max())
                             : static_cast<double>(std::numeric_limits<float>::max());
  const std::array<Scalar, 3> numbers = {nan.value_or(0.0), posinf.value_or(largest),
                                         neginf.value_or(-largest)};
  pointwise(iter, PointwiseOp::nan_to_num, *types, numbers);
}

const RegisterStub<decltype(complex_stub)> register_complex(complex_stub, &complex);
const RegisterStub<decltype(polar_stub)> register_polar(polar_stub, &polar);
const RegisterStub<decltype(nan_to_num_stub)> register_nan_to_num(nan_to_num_stub, &nan_to_num);

} // namespace
} // namespace torch_webgpu
