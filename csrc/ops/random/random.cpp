// Random numbers: the distribution stubs, one per row of rows.yaml.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/empty.h>
#include <c10/util/FunctionRef.h>

#include <bit>
#include <limits>

#include "backend/fallback.h"
#include "backend/tensor.h"
#include "launch/dtypes.h"
#include "launch/stub.h"
#include "ops/checks/check_values.h"
#include "ops/random/generate.h"

namespace torch_webgpu {
namespace {

using at::TensorBase;
using at::TensorIteratorBase;
using OptionalGenerator = std::optional<at::Generator>;
using namespace at::native;

// Draws numbers of dtypes without a kernel on the CPU, from a generator that is seeded from the
// state of the device's generator.
void draw_on_cpu(std::string_view op, const TensorBase& out, GeneratorImpl& generator,
                 c10::function_ref<void(const at::Tensor&, at::Generator)> draw) {
  note_fallback(op, out.scalar_type());
  const PhiloxState state = generator.philox_state(4);
  const at::Tensor host = at::empty(out.sizes(), at::device(at::kCPU).dtype(out.scalar_type()));
  draw(host, at::detail::createCPUGenerator(state.seed + state.offset * 0x9e3779b97f4a7c15ull));
  at::Tensor(out).copy_(host);
}

const TensorBase& tensor_of(const TensorBase& tensor) { return tensor; }
const TensorBase& tensor_of(const TensorIteratorBase& iter) { return iter.tensor_base(0); }

uint32_t float_bits(double value) { return std::bit_cast<uint32_t>(static_cast<float>(value)); }

// Raises the CPU's error for complex dtypes.
void require_real(RandomOp op, at::ScalarType type) {
  const std::string_view name = row(op).complex_refused_by;
  TORCH_CHECK_NOT_IMPLEMENTED(name.empty() || !at::isComplexType(type), "\"", name,
                              "\" not implemented for '", type, "'");
}

// A kernel with the stub's signature: the target (a tensor, or an iterator of one output), then one
// or two numbers.
template <auto& stub, RandomOp op, class Function>
struct Kernel;

template <auto& stub, RandomOp op, class Target, class... Numbers>
struct KernelBase {
  static void run(Target& target, Numbers... numbers, OptionalGenerator generator) {
    const TensorBase& out = tensor_of(target);
    require_real(op, out.scalar_type());
    GeneratorImpl& state = generator_of(generator, out.device());
    if (native_dtype(out.scalar_type())) {
      draw_row(op, out, state, {float_bits(numbers)...});
      return;
    }
    draw_on_cpu(row(op).name, out, state, [&](const at::Tensor& host, const at::Generator& cpu) {
      if constexpr (std::is_same_v<Target, TensorIteratorBase>) {
        auto iter = at::TensorIterator::borrowing_nullary_op(host);
        call_on_cpu(stub, iter, numbers..., cpu);
      } else {
        call_on_cpu(stub, host, numbers..., cpu);
      }
    });
  }
};

template <auto& stub, RandomOp op, class Target>
struct Kernel<stub, op, void (*)(Target&, double, OptionalGenerator)>
    : KernelBase<stub, op, Target, double> {};
template <auto& stub, RandomOp op, class Target>
struct Kernel<stub, op, void (*)(Target&, double, double, OptionalGenerator)>
    : KernelBase<stub, op, Target, double, double> {};

template <auto& stub, RandomOp op>
struct Kernel<stub, op, void (*)(const TensorBase&, const TensorBase&, OptionalGenerator)> {
  static void run(const TensorBase& out, const TensorBase& probability,
                  OptionalGenerator generator) {
    require_real(op, out.scalar_type());
    TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(probability.scalar_type()),
                                "\"bernoulli_tensor_cpu_p_\" not implemented for '",
                                probability.scalar_type(), "'");
    GeneratorImpl& state = generator_of(generator, out.device());
    const at::Tensor expanded = at::Tensor(probability).to(out.device()).expand(out.sizes());
    const bool native = native_dtype(expanded.scalar_type()).has_value();
    if (native && native_dtype(out.scalar_type())) {
      const at::Tensor p = expanded.to(at::kFloat).contiguous();
      require_probabilities(
          "bernoulli", p,
          "Expected p_in >= 0 && p_in <= 1 to be true, but got false.  (Could this error message "
          "be improved?  If so, please report an enhancement request to PyTorch.)");
      draw_row(op, out, state, {}, p);
      return;
    }
    draw_on_cpu(row(op).name, out, state, [&](const at::Tensor& host, const at::Generator& cpu) {
      call_on_cpu(stub, host, expanded.cpu(), cpu);
    });
  }
};

// Draws integers from [base, base + range).
void draw_integers(TensorIteratorBase& iter, RandomOp op, int64_t base, uint64_t range,
                   const OptionalGenerator& generator) {
  const auto start = static_cast<uint64_t>(base);
  const TensorBase& out = tensor_of(iter);
  draw_row(op, out, generator_of(generator, out.device()),
           {static_cast<uint32_t>(start), static_cast<uint32_t>(start >> 32),
            static_cast<uint32_t>(range), static_cast<uint32_t>(range >> 32)});
}

template <auto& stub, class... Arguments>
bool integers_on_cpu(TensorIteratorBase& iter, const OptionalGenerator& generator,
                     Arguments... arguments) {
  const TensorBase& out = tensor_of(iter);
  if (native_dtype(out.scalar_type())) {
    return false;
  }
  draw_on_cpu("random", out, generator_of(generator, out.device()),
              [&](const at::Tensor& host, const at::Generator& cpu) {
                auto cpu_iter = at::TensorIterator::borrowing_nullary_op(host);
                call_on_cpu(stub, cpu_iter, arguments..., cpu);
              });
  return true;
}

template <auto& stub, RandomOp op>
struct Kernel<stub, op, void (*)(TensorIteratorBase&, uint64_t, int64_t, OptionalGenerator)> {
  static void run(TensorIteratorBase& iter, uint64_t range, int64_t base,
                  OptionalGenerator generator) {
    if (!integers_on_cpu<stub>(iter, generator, range, base)) {
      const bool narrow = range <= std::numeric_limits<uint32_t>::max();
      draw_integers(iter, narrow ? RandomOp::random_narrow : op, base, range, generator);
    }
  }
};

void random_full_64_bits_range(TensorIteratorBase& iter, OptionalGenerator generator) {
  if (!integers_on_cpu<random_full_64_bits_range_stub>(iter, generator)) {
    draw_integers(iter, RandomOp::random_masked, 0, ~uint64_t{0}, generator);
  }
}

// Draws integers from 0 to the dtype's largest value, or for a floating point dtype to the end of
// its consecutive integers (2^24 for float32).
void random(TensorIteratorBase& iter, OptionalGenerator generator) {
  if (integers_on_cpu<random_stub>(iter, generator)) {
    return;
  }
  switch (tensor_of(iter).scalar_type()) {
  case at::kFloat:
    return draw_integers(iter, RandomOp::random_narrow, 0, (1 << 24) + 1, generator);
  case at::kHalf:
    return draw_integers(iter, RandomOp::random_narrow, 0, (1 << 11) + 1, generator);
  case at::kBFloat16:
    return draw_integers(iter, RandomOp::random_narrow, 0, (1 << 8) + 1, generator);
  case at::kBool:
    return draw_integers(iter, RandomOp::random_masked, 0, 1, generator);
  case at::kByte:
    return draw_integers(iter, RandomOp::random_masked, 0, 0xff, generator);
  default: {
    const auto bits = static_cast<uint32_t>(8 * c10::elementSize(tensor_of(iter).scalar_type()));
    draw_integers(iter, RandomOp::random_masked, 0, (uint64_t{1} << (bits - 1)) - 1, generator);
  }
  }
}

const RegisterStub<decltype(random_full_64_bits_range_stub)>
    register_random_full_64_bits_range(random_full_64_bits_range_stub, &random_full_64_bits_range);
const RegisterStub<decltype(random_stub)> register_random(random_stub, &random);

#define TW_REGISTER(op, stub)                                                                      \
  const RegisterStub<decltype(stub)> register_##op(                                                \
      stub, &Kernel<stub, RandomOp::op, decltype(stub_function(stub))>::run);
TW_RANDOM_STUBS(TW_REGISTER)
#undef TW_REGISTER

} // namespace
} // namespace torch_webgpu
