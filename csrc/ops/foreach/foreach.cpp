// torch._foreach_*: the rows of rows.yaml, and forms that these do not describe: many tensors per
// dispatch. What the multi-tensor kernels do not take (mixed dtypes, broadcasting, views,
// promotion) goes to ATen's implementation, one op per tensor.
#include <ATen/core/Tensor.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/ForeachUtils.h>
#include <ATen/ops/_foreach_abs_native.h>
#include <ATen/ops/_foreach_acos_native.h>
#include <ATen/ops/_foreach_add_native.h>
#include <ATen/ops/_foreach_addcdiv_native.h>
#include <ATen/ops/_foreach_addcmul_native.h>
#include <ATen/ops/_foreach_asin_native.h>
#include <ATen/ops/_foreach_atan_native.h>
#include <ATen/ops/_foreach_ceil_native.h>
#include <ATen/ops/_foreach_clamp_max_native.h>
#include <ATen/ops/_foreach_clamp_min_native.h>
#include <ATen/ops/_foreach_copy_native.h>
#include <ATen/ops/_foreach_cos_native.h>
#include <ATen/ops/_foreach_cosh_native.h>
#include <ATen/ops/_foreach_div_native.h>
#include <ATen/ops/_foreach_erf_native.h>
#include <ATen/ops/_foreach_erfc_native.h>
#include <ATen/ops/_foreach_exp_native.h>
#include <ATen/ops/_foreach_expm1_native.h>
#include <ATen/ops/_foreach_floor_native.h>
#include <ATen/ops/_foreach_frac_native.h>
#include <ATen/ops/_foreach_lerp_native.h>
#include <ATen/ops/_foreach_log10_native.h>
#include <ATen/ops/_foreach_log1p_native.h>
#include <ATen/ops/_foreach_log2_native.h>
#include <ATen/ops/_foreach_log_native.h>
#include <ATen/ops/_foreach_mul_native.h>
#include <ATen/ops/_foreach_neg_native.h>
#include <ATen/ops/_foreach_pow_native.h>
#include <ATen/ops/_foreach_reciprocal_native.h>
#include <ATen/ops/_foreach_round_native.h>
#include <ATen/ops/_foreach_rsqrt_native.h>
#include <ATen/ops/_foreach_sigmoid_native.h>
#include <ATen/ops/_foreach_sign_native.h>
#include <ATen/ops/_foreach_sin_native.h>
#include <ATen/ops/_foreach_sinh_native.h>
#include <ATen/ops/_foreach_sqrt_native.h>
#include <ATen/ops/_foreach_sub_native.h>
#include <ATen/ops/_foreach_tan_native.h>
#include <ATen/ops/_foreach_tanh_native.h>
#include <ATen/ops/_foreach_trunc_native.h>
#include <ATen/ops/_foreach_zero_native.h>

#include "backend/registration.h"
#include "launch/dtypes.h"
#include "ops/foreach/foreach_run.h"
#include "tables/foreach.h"

namespace torch_webgpu {
namespace {

using at::Scalar;
using at::Tensor;
using at::TensorList;
using Scalars = at::ArrayRef<Scalar>;
using Tensors = std::vector<Tensor>;
using Form = ForeachForm;
using Arguments = ForeachArguments;
using namespace at::native;

// Runs the multi-tensor kernels, or `slow` (ATen's implementation) if they do not take the
// arguments.
template <class Slow, class... Args>
Tensors or_slow(const Form& form, const Arguments& arguments, Slow slow, Args&&... args) {
  auto fast = foreach_functional(form, arguments);
  return fast ? std::move(*fast) : slow(std::forward<Args>(args)...);
}
template <class Slow, class... Args>
void or_slow_in_place(const Form& form, const Arguments& arguments, Slow slow, Args&&... args) {
  if (!foreach_in_place(form, arguments)) {
    slow(std::forward<Args>(args)...);
  }
}

template <PointwiseOp op, auto slow, auto slow_in_place>
struct Unary {
  static Arguments arguments(TensorList self) {
    check_foreach_api_restrictions(self);
    return {{self}, 1};
  }
  static Tensors functional(TensorList self) { return or_slow({op}, arguments(self), slow, self); }
  static void in_place(TensorList self) {
    or_slow_in_place({op}, arguments(self), slow_in_place, self);
  }
};

// Only subtraction has a negative factor, and it does not take bool. Bounds do not wrap, as those
// of clamp() do not.
template <PointwiseOp op, int sign>
void check_scalars(TensorList self, Scalars scalars) {
  constexpr bool is_bound = op == PointwiseOp::maximum || op == PointwiseOp::minimum;
  if constexpr (sign < 0 || is_bound) {
    for (size_t i = 0; i < self.size(); ++i) {
      const Scalar& scalar = scalars[scalars.size() == 1 ? 0 : i];
      if constexpr (sign < 0) {
        at::native::sub_check(self[i], scalar);
      }
      if (is_bound && scalar.isIntegral(true) &&
          at::isIntegralType(self[i].scalar_type(), /*includeBool=*/false)) {
        check_fits(scalar, self[i].scalar_type());
      }
    }
  }
}

// Raises for numbers that a list of integers cannot hold, as each tensor's own operator does.
void check_numbers(TensorList self, Scalars numbers) {
  for (size_t i = 0; i < self.size(); ++i) {
    if (at::isIntegralType(self[i].scalar_type(), /*includeBool=*/true)) {
      check_fits(numbers[numbers.size() == 1 ? 0 : i], self[i].scalar_type());
    }
  }
}

void check_alpha(TensorList self, const Scalar& alpha) {
  if (!alpha.isBoolean() && alpha.equal(1)) {
    return;
  }
  for (const Tensor& tensor : self) {
    at::native::alpha_check(tensor.scalar_type(), alpha);
  }
  check_numbers(self, alpha);
}

// `sign` is the factor of the second operand: subtraction adds its negative.
template <PointwiseOp op, int sign, auto slow, auto slow_in_place>
struct WithScalar {
  static constexpr Form kForm{op, SecondOperand::kScalar};
  static Tensors functional(TensorList self, const Scalar& scalar) {
    check_foreach_api_restrictions(self);
    check_scalars<op, sign>(self, scalar);
    return or_slow(kForm, {{self}, 1, scalar, sign}, slow, self, scalar);
  }
  static void in_place(TensorList self, const Scalar& scalar) {
    check_foreach_api_restrictions(self);
    check_scalars<op, sign>(self, scalar);
    or_slow_in_place(kForm, {{self}, 1, scalar, sign}, slow_in_place, self, scalar);
  }
};

template <PointwiseOp op, int sign, auto slow, auto slow_in_place>
struct WithScalarList {
  static constexpr Form kForm{op, SecondOperand::kScalar};
  static Tensors functional(TensorList self, Scalars scalars) {
    check_foreach_api_restrictions(self, scalars);
    check_scalars<op, sign>(self, scalars);
    return or_slow(kForm, {{self}, 1, scalars, sign}, slow, self, scalars);
  }
  static void in_place(TensorList self, Scalars scalars) {
    check_foreach_api_restrictions(self, scalars);
    check_scalars<op, sign>(self, scalars);
    or_slow_in_place(kForm, {{self}, 1, scalars, sign}, slow_in_place, self, scalars);
  }
};

template <PointwiseOp op, auto slow, auto slow_in_place>
struct WithList {
  static Tensors functional(TensorList self, TensorList other) {
    check_foreach_api_restrictions(self, other);
    return or_slow({op}, {{self, other}, 2}, slow, self, other);
  }
  static void in_place(TensorList self, TensorList other) {
    check_foreach_api_restrictions(self, other);
    or_slow_in_place({op}, {{self, other}, 2}, slow_in_place, self, other);
  }
};

template <PointwiseOp op, int sign, auto slow, auto slow_in_place>
struct ScaledList {
  static Arguments arguments(TensorList self, TensorList other, const Scalar& alpha) {
    check_foreach_api_restrictions(self, other);
    check_alpha(self, alpha);
    return {{self, other}, 2, {}, sign < 0 ? -alpha : alpha};
  }
  static Tensors functional(TensorList self, TensorList other, const Scalar& alpha) {
    return or_slow({op}, arguments(self, other, alpha), slow, self, other, alpha);
  }
  static void in_place(TensorList self, TensorList other, const Scalar& alpha) {
    or_slow_in_place({op}, arguments(self, other, alpha), slow_in_place, self, other, alpha);
  }
};

template <PointwiseOp op, auto slow, auto slow_in_place>
struct WithTensor {
  static constexpr Form kForm{op, SecondOperand::kDeviceScalar};
  static Tensors functional(TensorList self, const Tensor& other) {
    check_foreach_api_restrictions(self);
    return or_slow(kForm, {{self}, 1, {}, 1, other}, slow, self, other);
  }
  static void in_place(TensorList self, const Tensor& other) {
    check_foreach_api_restrictions(self);
    or_slow_in_place(kForm, {{self}, 1, {}, 1, other}, slow_in_place, self, other);
  }
};

struct AddTensor {
  static constexpr Form kForm{PointwiseOp::add, SecondOperand::kDeviceScalar};
  static Tensors functional(TensorList self, const Tensor& other, const Scalar& alpha) {
    check_foreach_api_restrictions(self);
    check_alpha(self, alpha);
    return or_slow(kForm, {{self}, 1, {}, alpha, other}, &foreach_tensor_add_tensor_kernel_slow,
                   self, other, alpha);
  }
  static void in_place(TensorList self, const Tensor& other, const Scalar& alpha) {
    check_foreach_api_restrictions(self);
    check_alpha(self, alpha);
    or_slow_in_place(kForm, {{self}, 1, {}, alpha, other}, &foreach_tensor_add_tensor_kernel_slow_,
                     self, other, alpha);
  }
};

// a, b and c are lists, s0 is a number for each tensor: addcmul, addcdiv. `Numbers` is the type of
// that argument: one number, a list, or a tensor on the CPU.
template <PointwiseOp op, class Numbers, auto slow, auto slow_in_place>
struct Ternary {
  static constexpr Form kForm{op, SecondOperand::kList, Factor::kPerTensor};
  static Arguments arguments(TensorList self, TensorList a, TensorList b, Scalars scalars) {
    check_foreach_api_restrictions(self, a, b);
    check_numbers(self, scalars);
    return {{self, a, b}, 3, scalars};
  }
  static std::vector<Scalar> list(TensorList, const Scalar& value) { return {value}; }
  static std::vector<Scalar> list(TensorList self, Scalars values) {
    check_foreach_api_restrictions(self, values);
    return values.vec();
  }
  static std::vector<Scalar> list(TensorList self, const Tensor& values) {
    return convert_tensor_to_scalar_list(values, static_cast<int64_t>(self.size()));
  }
  static Tensors functional(TensorList self, TensorList a, TensorList b, Numbers numbers) {
    const auto scalars = list(self, numbers);
    return or_slow(kForm, arguments(self, a, b, scalars), slow, self, a, b, numbers);
  }
  static void in_place(TensorList self, TensorList a, TensorList b, Numbers numbers) {
    const auto scalars = list(self, numbers);
    or_slow_in_place(kForm, arguments(self, a, b, scalars), slow_in_place, self, a, b, numbers);
  }
};

template <class Numbers, auto slow, auto slow_in_place>
struct Lerp {
  static constexpr Form kForm{PointwiseOp::lerp_kernel_scalar_weight, SecondOperand::kList,
                              Factor::kPerTensor};
  static Tensors functional(TensorList self, TensorList end, Numbers weight) {
    check_foreach_api_restrictions(self, end);
    return or_slow(kForm, {{self, end}, 2, weight}, slow, self, end, weight);
  }
  static void in_place(TensorList self, TensorList end, Numbers weight) {
    check_foreach_api_restrictions(self, end);
    or_slow_in_place(kForm, {{self, end}, 2, weight}, slow_in_place, self, end, weight);
  }
};

Tensors scalar_pow_list(const Scalar& base, TensorList exponents) {
  check_foreach_api_restrictions(exponents);
  const Form form{.op = PointwiseOp::pow_tensor_tensor, .first_is_common = true};
  return or_slow(form, {{exponents}, 1, {}, base}, &foreach_scalar_pow_list_kernel_slow, base,
                 exponents);
}

Tensors lerp_list(TensorList self, TensorList end, TensorList weights) {
  check_foreach_api_restrictions(self, end, weights);
  return or_slow({PointwiseOp::lerp_kernel_tensor_weight}, {{self, end, weights}, 3},
                 &foreach_tensor_ternary_lerp_slow, self, end, weights);
}

void lerp_list_(TensorList self, TensorList end, TensorList weights) {
  check_foreach_api_restrictions(self, end, weights);
  or_slow_in_place({PointwiseOp::lerp_kernel_tensor_weight}, {{self, end, weights}, 3},
                   &foreach_tensor_ternary_lerp_slow_, self, end, weights);
}

void zero_(TensorList self) {
  check_foreach_api_restrictions(self);
  or_slow_in_place({PointwiseOp::zero}, {{self}, 1}, &foreach_tensor_zero_slow_, self);
}

void copy_(TensorList self, TensorList source, bool non_blocking) {
  check_foreach_api_restrictions(self, source);
  if (!foreach_into(self, {PointwiseOp::copy}, {{source}, 1})) {
    foreach_tensor_copy_list_kernel_slow_(self, source, non_blocking);
  }
}

#define FOREACH_PAIR(name, overload, ...)                                                          \
  m.impl("_foreach_" #name overload, &__VA_ARGS__::functional);                                    \
  m.impl("_foreach_" #name "_" overload, &__VA_ARGS__::in_place);
#define FOREACH_UNARY(name, slow, row, sign)                                                       \
  FOREACH_PAIR(                                                                                    \
      name, "",                                                                                    \
      Unary<PointwiseOp::row, &foreach_tensor_##slow##_slow, &foreach_tensor_##slow##_slow_>)
#define FOREACH_SCALAR(name, slow, row, sign)                                                      \
  FOREACH_PAIR(name, ".Scalar",                                                                    \
               WithScalar<PointwiseOp::row, sign, &foreach_tensor_##slow##_scalar_kernel_slow,     \
                          &foreach_tensor_##slow##_scalar_kernel_slow_>)                           \
  FOREACH_PAIR(                                                                                    \
      name, ".ScalarList",                                                                         \
      WithScalarList<PointwiseOp::row, sign, &foreach_tensor_##slow##_scalarlist_kernel_slow,      \
                     &foreach_tensor_##slow##_scalarlist_kernel_slow_>)
#define FOREACH_LIST(name, slow, row, sign)                                                        \
  FOREACH_PAIR(name, ".List",                                                                      \
               WithList<PointwiseOp::row, &foreach_tensor_##slow##_list_kernel_slow,               \
                        &foreach_tensor_##slow##_list_kernel_slow_>)
#define FOREACH_SCALED_LIST(name, slow, row, sign)                                                 \
  FOREACH_PAIR(name, ".List",                                                                      \
               ScaledList<PointwiseOp::row, sign, &foreach_tensor_##slow##_list_kernel_slow,       \
                          &foreach_tensor_##slow##_list_kernel_slow_>)
#define FOREACH_TENSOR(name, slow, row, sign)                                                      \
  FOREACH_PAIR(name, ".Tensor",                                                                    \
               WithTensor<PointwiseOp::row, &foreach_tensor_##slow##_tensor_kernel_slow,           \
                          &foreach_tensor_##slow##_tensor_kernel_slow_>)
#define FOREACH_TERNARY(name, slow, row, sign)                                                     \
  FOREACH_PAIR(name, ".Scalar",                                                                    \
               Ternary<PointwiseOp::row, const Scalar&, &foreach_tensor_##slow##_scalar_slow,      \
                       &foreach_tensor_##slow##_scalar_slow_>)                                     \
  FOREACH_PAIR(name, ".ScalarList",                                                                \
               Ternary<PointwiseOp::row, Scalars, &foreach_tensor_##slow##_scalarlist_slow,        \
                       &foreach_tensor_##slow##_scalarlist_slow_>)                                 \
  FOREACH_PAIR(name, ".Tensor",                                                                    \
               Ternary<PointwiseOp::row, const Tensor&, &foreach_tensor_##slow##_tensor_slow,      \
                       &foreach_tensor_##slow##_tensor_slow_>)

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  TW_FOREACH_ROWS(FOREACH_UNARY, FOREACH_SCALAR, FOREACH_LIST, FOREACH_SCALED_LIST, FOREACH_TENSOR,
                  FOREACH_TERNARY)
  FOREACH_PAIR(add, ".Tensor", AddTensor)
  FOREACH_PAIR(lerp, ".Scalar",
               Lerp<const Scalar&, &foreach_tensor_lerp_list_kernel_slow,
                    &foreach_tensor_lerp_list_kernel_slow_>)
  FOREACH_PAIR(lerp, ".ScalarList",
               Lerp<Scalars, &foreach_tensor_lerp_scalarlist_kernel_slow,
                    &foreach_tensor_lerp_scalarlist_kernel_slow_>)
  m.impl("_foreach_pow.ScalarAndTensor", &scalar_pow_list);
  m.impl("_foreach_lerp.List", &lerp_list);
  m.impl("_foreach_lerp_.List", &lerp_list_);
  m.impl("_foreach_zero_", &zero_);
  m.impl("_foreach_copy_", &copy_);
}

} // namespace
} // namespace torch_webgpu
