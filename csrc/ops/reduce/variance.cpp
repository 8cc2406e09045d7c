// std, var, std_mean and var_mean. ATen's own implementations reach std_var_stub too, but before
// torch 2.12 they refuse every device that they do not know.
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/ReduceOps.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/real.h>

#include <limits>
#include <tuple>

#include "backend/fallback.h"
#include "backend/registration.h"
#include "backend/torch_versions.h"
#include "launch/common.h"
#include "launch/stub.h"
#include "ops/reduce/reduce.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using at::TensorIterator;
using at::TensorIteratorBase;
using Dims = at::OptionalIntArrayRef;
using Correction = std::optional<c10::Scalar>;

struct Statistic {
  const char* name;
  bool take_sqrt;
  const Tensor& self;
  Dims dim;
  double correction;
  bool keepdim;
};

// `op` is how PyTorch names the operator in these errors.
void check_input(const Statistic& of, const char* op) {
  TORCH_CHECK(of.self.layout() == at::kStrided, op,
              " only supports strided layout, got: ", of.self.layout());
  TORCH_WEBGPU_CHECK_SINCE(2, 15, NOT_IMPLEMENTED,
                           at::isFloatingType(of.self.scalar_type()) || of.self.is_complex(), op,
                           " only support floating point and complex dtypes");
}

void run(const Statistic& of, TensorIterator& iter) {
  const int64_t outputs = iter.num_output_elements();
  const int64_t reduced = outputs == 0 ? 0 : iter.numel() / outputs;
  if (static_cast<double>(reduced) <= of.correction) {
    TORCH_WARN(of.name,
               "(): degrees of freedom is <= 0. Correction should be strictly less than the "
               "reduction factor (input numel divided by output numel).");
  }
  if (iter.numel() == 0) {
    for (int i = 0; i < iter.noutputs(); ++i) {
      iter.tensor(i).fill_(std::numeric_limits<double>::quiet_NaN());
    }
  } else if (can_reduce(iter, ReduceOp::variance_op)) {
    reduce(iter, ReduceOp::variance_op, {c10::Scalar(of.correction), c10::Scalar(of.take_sqrt)});
  } else {
    fallback_iterator(
        iter, std::string("aten::") + of.name,
        [&](TensorIteratorBase& cpu) {
          call_on_cpu(at::native::std_var_stub, static_cast<TensorIterator&>(cpu), of.correction,
                      of.take_sqrt);
        },
        IteratorForm::kReduction);
  }
}

Tensor empty_result(const Tensor& self) {
  return at::empty({0}, self.options().dtype(c10::toRealValueType(self.scalar_type())));
}

// The variance of a complex tensor is the sum of those of its parts.
void join_parts(Tensor& real, const Tensor& imaginary, bool take_sqrt) {
  real.add_(imaginary);
  if (take_sqrt) {
    real.sqrt_();
  }
}

void variance(const Statistic& of, Tensor& result) {
  check_input(of, "std and var");
  // Checked before the iterator computes in the result's dtype. The variance of complex numbers is
  // real.
  const c10::ScalarType type = c10::toRealValueType(of.self.scalar_type());
  TORCH_CHECK(at::canCast(type, result.scalar_type()), "result type ", type,
              " can't be cast to the desired output type ", result.scalar_type());
  if (of.self.is_complex()) {
    Tensor real = empty_result(of.self);
    Tensor imaginary = empty_result(of.self);
    variance({of.name, false, at::real(of.self), of.dim, of.correction, of.keepdim}, real);
    variance({of.name, false, at::imag(of.self), of.dim, of.correction, of.keepdim}, imaginary);
    join_parts(real, imaginary, of.take_sqrt);
    write_out(real, result);
    return;
  }
  TensorIterator iter = at::native::make_reduction(of.name, result, of.self, of.dim, of.keepdim,
                                                   result.scalar_type());
  run(of, iter);
}

std::tuple<Tensor, Tensor> variance_and_mean(const Statistic& of) {
  check_input(of, of.name);
  if (of.self.is_complex()) {
    auto [real, real_mean] =
        variance_and_mean({of.name, false, at::real(of.self), of.dim, of.correction, of.keepdim});
    auto [imaginary, imaginary_mean] =
        variance_and_mean({of.name, false, at::imag(of.self), of.dim, of.correction, of.keepdim});
    join_parts(real, imaginary, of.take_sqrt);
    return {real, at::complex(real_mean, imaginary_mean)};
  }
  Tensor result = empty_result(of.self);
  Tensor mean = empty_result(of.self);
  TensorIterator iter = at::native::make_reduction(of.name, result, mean, of.self, of.dim,
                                                   of.keepdim, result.scalar_type());
  run(of, iter);
  return {result, mean};
}

double degrees(const Correction& correction) {
  return correction.value_or(c10::Scalar(1)).toDouble();
}

template <bool take_sqrt>
Tensor& variance_out(const Tensor& self, Dims dim, const Correction& correction, bool keepdim,
                     Tensor& out) {
  variance({take_sqrt ? "std" : "var", take_sqrt, self, dim, degrees(correction), keepdim}, out);
  return out;
}

template <bool take_sqrt>
Tensor variance_of(const Tensor& self, Dims dim, const Correction& correction, bool keepdim) {
  Tensor result = empty_result(self);
  return variance_out<take_sqrt>(self, dim, correction, keepdim, result);
}

template <bool take_sqrt>
std::tuple<Tensor, Tensor> variance_mean_of(const Tensor& self, Dims dim,
                                            const Correction& correction, bool keepdim) {
  return variance_and_mean(
      {take_sqrt ? "std_mean" : "var_mean", take_sqrt, self, dim, degrees(correction), keepdim});
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("std.correction", variance_of<true>);
  m.impl("std.correction_out", variance_out<true>);
  m.impl("std_mean.correction", variance_mean_of<true>);
  m.impl("var.correction", variance_of<false>);
  m.impl("var.correction_out", variance_out<false>);
  m.impl("var_mean.correction", variance_mean_of<false>);
}

} // namespace
} // namespace torch_webgpu
