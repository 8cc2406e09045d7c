// Ranges and other factories. Every element is computed from its index alone, so that no rounding
// error accumulates.
#include <ATen/Dispatch.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/RangeFactories.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logspace.h>
#include <ATen/ops/range.h>
#include <ATen/ops/special_i0.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/registration.h"
#include "backend/tensor.h"
#include "launch/dtypes.h"
#include "launch/stub.h"
#include "ops/factory/factory_table.h"
#include "ops/random/generate.h"

namespace torch_webgpu {
namespace {

using at::Scalar;
using at::Tensor;
using at::TensorIterator;
using at::native::arange_stub;
using at::native::kaiser_window_stub;
using at::native::linspace_stub;

bool is_native(at::ScalarType type) {
  return native_dtype(type) && type != at::kBool && !at::isComplexType(type);
}

void run(const at::TensorBase& out, FactoryOp op, std::array<uint32_t, 8> arguments,
         PhiloxState philox = {}) {
  if (!is_native(out.scalar_type())) {
    const Tensor integers = empty_webgpu(out.sizes(), at::kLong, out.device());
    run(integers, op, arguments, philox);
    Tensor(out).copy_(integers);
    return;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(out.numel() <= int64_t{1} << 32, "a range of ", out.numel(),
                              " elements is too long");
  const FactoryRow& of = row(op);
  generate(out, {.name = of.name,
                 .table = kernels::generate::Table::factory_rows,
                 .row = static_cast<uint32_t>(op),
                 .source = kernels::generate::Source::position,
                 .kind = of.kind,
                 .value = of.value,
                 .arguments = arguments,
                 .philox = philox});
}

uint32_t low(int64_t value) { return static_cast<uint32_t>(value); }
uint32_t high(int64_t value) { return static_cast<uint32_t>(static_cast<uint64_t>(value) >> 32); }
uint32_t bits(double value) { return std::bit_cast<uint32_t>(static_cast<float>(value)); }

// Computes start + i * step in 64-bit fixed point. The CPU's kernel computes in float64, and
// float32 would lose digits. The unit is chosen so that the largest number is 2^60 to 2^61 units.
void fixed_point(const at::TensorBase& out, double start, double step) {
  const double last = start + step * static_cast<double>(out.numel() - 1);
  const double largest = std::max({std::abs(start), std::abs(last), std::abs(step)});
  const int exponent = largest > 0 ? std::ilogb(largest) - 60 : 0;
  const auto first_units = static_cast<int64_t>(std::nearbyint(std::ldexp(start, -exponent)));
  const auto step_units = static_cast<int64_t>(std::nearbyint(std::ldexp(step, -exponent)));
  run(out, FactoryOp::arange_fixed_point,
      {low(first_units), high(first_units), low(step_units), high(step_units),
       bits(std::ldexp(1.0, exponent / 2)), bits(std::ldexp(1.0, exponent - exponent / 2))});
}

void arange(TensorIterator& iter, const Scalar& start, const Scalar& steps, const Scalar& step) {
  const at::TensorBase& out = iter.tensor_base(0);
  if (!is_native(out.scalar_type())) {
    return fallback_iterator(iter, "aten::arange", [&](at::TensorIteratorBase& cpu) {
      call_on_cpu(arange_stub, static_cast<TensorIterator&>(cpu), start, steps, step);
    });
  }
  if (at::isFloatingType(out.scalar_type())) {
    return fixed_point(out, start.to<double>(), step.to<double>());
  }
  const auto first = start.to<int64_t>();
  const auto by = step.to<int64_t>();
  run(out, FactoryOp::arange_integer, {low(first), high(first), low(by), high(by)});
}

void linspace(TensorIterator& iter, const Scalar& start, const Scalar& end, int64_t steps) {
  const at::TensorBase& out = iter.tensor_base(0);
  if (!is_native(out.scalar_type())) {
    return fallback_iterator(iter, "aten::linspace", [&](at::TensorIteratorBase& cpu) {
      call_on_cpu(linspace_stub, static_cast<TensorIterator&>(cpu), start, end, steps);
    });
  }
  const int64_t gaps = std::max<int64_t>(steps - 1, 1);
  check_fits(start, out.scalar_type());
  check_fits(end, out.scalar_type());
  if (at::isFloatingType(out.scalar_type())) {
    const auto first = start.to<double>();
    const auto last = end.to<double>();
    return run(
        out, FactoryOp::linspace,
        {bits(first), bits(last), bits((last - first) / static_cast<double>(gaps)), low(steps)});
  }
  const auto first = start.to<int64_t>();
  const auto last = end.to<int64_t>();
  // Unsigned, because the distance may exceed the range of int64_t.
  const auto divisor = static_cast<uint64_t>(gaps);
  const uint64_t rise = static_cast<uint64_t>(last) - static_cast<uint64_t>(first);
  const uint64_t distance = last < first ? 0 - rise : rise;
  uint64_t whole = distance / divisor;
  uint64_t part = distance % divisor;
  if (last < first) { // steps are rounded down
    whole = 0 - whole - (part != 0 ? 1 : 0);
    part = part != 0 ? divisor - part : 0;
  }
  const auto step = static_cast<int64_t>(whole);
  run(out, FactoryOp::linspace_integer,
      {low(first), high(first), low(step), high(step), static_cast<uint32_t>(part), low(gaps)});
}

// Iterator: output, positions. The window is the modified Bessel function I0 of a half circle.
void kaiser_window(at::TensorIteratorBase& iter, int64_t length, double beta) {
  const Tensor& positions = iter.tensor(1);
  if (!is_native(positions.scalar_type())) {
    return fallback_iterator(iter, "aten::kaiser_window", [&](at::TensorIteratorBase& cpu) {
      call_on_cpu(kaiser_window_stub, cpu, length, beta);
    });
  }
  const double middle = static_cast<double>(length - 1) / 2;
  const Tensor x = positions.to(at::kFloat).sub(middle).div(middle);
  const Tensor circle = x.mul(x).neg_().add_(1).clamp_min_(0).sqrt_();
  const Tensor ends = at::full({}, beta, circle.options());
  iter.tensor(0).copy_(at::special_i0(circle.mul(beta)).div_(at::special_i0(ends)));
}

const RegisterStub<decltype(arange_stub)> register_arange(arange_stub, &arange);
const RegisterStub<decltype(linspace_stub)> register_linspace(linspace_stub, &linspace);
const RegisterStub<decltype(kaiser_window_stub)> register_kaiser(kaiser_window_stub,
                                                                 &kaiser_window);

Tensor& eye_m_out(int64_t n, int64_t m, Tensor& result) {
  TORCH_CHECK(n >= 0, "n must be greater or equal to 0, got ", n);
  TORCH_CHECK(m >= 0, "m must be greater or equal to 0, got ", m);
  result.resize_({n, m});
  result.zero_();
  result.diagonal().fill_(1);
  return result;
}

Tensor& eye_out(int64_t n, Tensor& result) { return eye_m_out(n, n, result); }

Tensor& range_out(const Scalar& start, const Scalar& end, const Scalar& step, Tensor& result) {
  if (!is_native(result.scalar_type())) {
    return result.copy_(at::range(start, end, step, result.options().device(at::kCPU)));
  }
  // Both ends are included. As on the CPU, the number of elements is computed in the type in which
  // elements are added.
  const bool floating = at::isFloatingType(result.scalar_type());
  const double first = floating ? start.to<double>() : static_cast<double>(start.to<int64_t>());
  const double last = floating ? end.to<double>() : static_cast<double>(end.to<int64_t>());
  const double by = floating ? step.to<double>() : static_cast<double>(step.to<int64_t>());
  TORCH_CHECK(by > 0 || by < 0, "step must be nonzero");
  TORCH_CHECK(std::isfinite(first) && std::isfinite(last), "unsupported range: ", first, " -> ",
              last);
  TORCH_CHECK((by > 0 && last >= first) || (by < 0 && last <= first),
              "upper bound and lower bound inconsistent with step sign");
  const auto size = static_cast<int64_t>((last - first) / by) + 1;
  if (result.numel() != size) {
    result.resize_({size});
  }
  if (floating) {
    fixed_point(result, first, by);
  } else {
    const auto from = start.to<int64_t>();
    const auto add = step.to<int64_t>();
    run(result, FactoryOp::arange_integer, {low(from), high(from), low(add), high(add)});
  }
  return result;
}

Tensor& logspace_out(const Scalar& start, const Scalar& end, int64_t steps, double base,
                     Tensor& result) {
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  if (result.numel() != steps) {
    result.resize_({steps});
  }
  if (!is_native(result.scalar_type()) || !at::isFloatingType(result.scalar_type())) {
    // Powers of integers are rounded from float64.
    note_fallback("aten::logspace.out", result.scalar_type());
    return result.copy_(
        at::logspace(start, end, steps, base, result.options().device(at::kCPU)).view_as(result));
  }
  const auto first = start.to<double>();
  const auto last = steps == 1 ? first : end.to<double>();
  const double gaps = static_cast<double>(std::max<int64_t>(steps - 1, 1));
  run(result, FactoryOp::logspace,
      {bits(first), bits(last), bits((last - first) / gaps), low(steps), bits(base)});
  return result;
}

Tensor triangle_indices(int64_t row, int64_t col, int64_t offset, int64_t size, bool upper,
                        std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                        std::optional<at::Device> device) {
  Tensor result =
      empty_webgpu({2, size}, at::TensorOptions().dtype(dtype.value_or(at::kLong)).device(device));
  constexpr int64_t kLimit = int64_t{1} << 31;
  TORCH_CHECK_NOT_IMPLEMENTED(row * col < kLimit, "tril_indices: the matrix has too many elements");
  // With offsets beyond these bounds every row is complete or empty.
  const int64_t near = std::clamp(offset, -row - 1, col + 1);
  run(result, FactoryOp::triangle, {low(row), low(col), low(near), upper ? 1u : 0u, 0, low(size)});
  return result;
}

Tensor tril_indices(int64_t row, int64_t col, int64_t offset, std::optional<at::ScalarType> dtype,
                    std::optional<at::Layout> layout, std::optional<at::Device> device,
                    std::optional<bool>) {
  at::native::check_args(row, col, layout);
  const int64_t size = at::native::get_tril_size(row, col, offset);
  return triangle_indices(row, col, offset, size, false, dtype, layout, device);
}

Tensor triu_indices(int64_t row, int64_t col, int64_t offset, std::optional<at::ScalarType> dtype,
                    std::optional<at::Layout> layout, std::optional<at::Device> device,
                    std::optional<bool>) {
  at::native::check_args(row, col, layout);
  const int64_t size = row * col - at::native::get_tril_size(row, col, offset - 1);
  return triangle_indices(row, col, offset, size, true, dtype, layout, device);
}

Tensor& randperm_out(int64_t n, std::optional<at::Generator> generator, Tensor& result) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  TORCH_CHECK_NOT_IMPLEMENTED(n < int64_t{1} << 31, "randperm of ", n, " elements is too long");
  at::native::check_supported_max_int_with_precision(n, result);
  result.resize_({n});
  // For small n, ranks of random keys make all n! permutations equally likely.
  constexpr int64_t kRanked = 2048;
  const FactoryOp op = n <= kRanked ? FactoryOp::rank : FactoryOp::permutation;
  run(result, op, {low(n)}, generator_of(generator, result.device()).philox_state(4));
  return result;
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("eye.out", TORCH_FN(eye_out));
  m.impl("eye.m_out", TORCH_FN(eye_m_out));
  m.impl("range.out", TORCH_FN(range_out));
  m.impl("logspace.out", TORCH_FN(logspace_out));
  m.impl("tril_indices", TORCH_FN(tril_indices));
  m.impl("triu_indices", TORCH_FN(triu_indices));
  m.impl("randperm.generator_out", TORCH_FN(randperm_out));
}

} // namespace
} // namespace torch_webgpu
