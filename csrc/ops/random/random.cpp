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
#include "ops/random/check_values.h"
#include "ops/random/generate.h"
#include "ops/random/random_table.h"

namespace torch_webgpu {
namespace {

using at::TensorBase;
using at::TensorIteratorBase;
using OptionalGenerator = std::optional<at::Generator>;
using namespace at::native;

// Numbers of 32 bits that one invocation draws.
uint32_t draws(RandomSource source) { return source == RandomSource::kBits64 ? 8 : 4; }

std::string values_hook(const GenerateSpec& spec) {
  const RandomRow& op_row = row(static_cast<RandomOp>(spec.op));
  const bool wide = op_row.source == RandomSource::kBits64;
  const std::string type(kind_wgsl(spec.kind));
  std::string text = "fn value(";
  std::string words = "  let w = philox_at(p.philox.xy, block, p.philox.zw);\n";
  std::array<std::string, 4> x = {"w.x", "w.y", "w.z", "w.w"};
  switch (op_row.source) {
  case RandomSource::kBits:
    text += "x: u32";
    break;
  case RandomSource::kTensor:
    text += "x: u32, y: f32";
    for (uint32_t lane = 0; lane < 4; ++lane) {
      // The last invocation has fewer elements; it may read the last one more than once.
      x[lane] += ", load_x(p.x_at + min(index + " + std::to_string(lane) + "u, p.count - 1u))";
    }
    break;
  case RandomSource::kNormal:
    text += "x: f32";
    words += "  let a = normal_pair_f(w.x, w.y);\n  let b = normal_pair_f(w.z, w.w);\n";
    x = {"a.x", "a.y", "b.x", "b.y"};
    break;
  case RandomSource::kBits64:
    text += "x: vec2<u32>";
    words += "  let v = philox_at(p.philox.xy, block, add_l(p.philox.zw, vec2<u32>(1u, 0u)));\n";
    x = {"w.xy", "w.zw", "v.xy", "v.zw"};
    break;
  }
  text += ") -> " + type + " {\n  let s0 = " + (wide ? "p.s[0].xy" : "bitcast<f32>(p.s[0].x)") +
          ";\n  let s1 = " + (wide ? "p.s[0].zw" : "bitcast<f32>(p.s[0].y)") + ";\n  return " +
          std::string(op_row.value) + ";\n}\n";
  text += "fn values(block: u32, index: u32) -> array<" + type + ", 4> {\n" + words +
          "  return array<" + type + ", 4>(";
  for (uint32_t lane = 0; lane < 4; ++lane) {
    text += (lane != 0 ? ", value(" : "value(") + x[lane] + ")";
  }
  return text + ");\n}";
}

// Draws numbers of dtypes without a kernel on the CPU, from a generator that is seeded from the
// state of the device's generator.
void draw_on_cpu(std::string_view op, const TensorBase& out, GeneratorImpl& generator,
                 c10::function_ref<void(const at::Tensor&, at::Generator)> draw) {
  note_fallback(op, std::string("for ") + c10::toString(out.scalar_type()));
  const PhiloxState state = generator.philox_state(4);
  const at::Tensor host = at::empty(out.sizes(), at::device(at::kCPU).dtype(out.scalar_type()));
  draw(host, at::detail::createCPUGenerator(state.seed + state.offset * 0x9e3779b97f4a7c15ull));
  at::Tensor(out).copy_(host);
}

void draw(RandomOp op, const TensorBase& out, std::array<uint32_t, 8> arguments,
          GeneratorImpl& generator, const at::Tensor& input = {}) {
  if (out.numel() == 0) {
    return;
  }
  const RandomRow& op_row = row(op);
  GenerateSpec spec{};
  spec.family = Generated::kRandom;
  spec.op = static_cast<uint32_t>(op);
  spec.name = op_row.name;
  spec.kind = op_row.source == RandomSource::kBits64 ? Kind::kLong : Kind::kFloat;
  spec.arguments = arguments;
  spec.philox = generator.philox_state(draws(op_row.source));
  generate(out, spec, &values_hook, input);
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
    GeneratorImpl& state = generator_of(generator);
    if (native_dtype(out.scalar_type())) {
      draw(op, out, {float_bits(numbers)...}, state);
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
    GeneratorImpl& state = generator_of(generator);
    const at::Tensor expanded = at::Tensor(probability).to(out.device()).expand(out.sizes());
    const bool native = native_dtype(expanded.scalar_type()).has_value();
    if (native && native_dtype(out.scalar_type())) {
      const at::Tensor p = expanded.to(at::kFloat).contiguous();
      require_probabilities(
          "bernoulli", p,
          "Expected p_in >= 0 && p_in <= 1 to be true, but got false.  (Could this error message "
          "be improved?  If so, please report an enhancement request to PyTorch.)");
      draw(op, out, {}, state, p);
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
  draw(op, tensor_of(iter),
       {static_cast<uint32_t>(start), static_cast<uint32_t>(start >> 32),
        static_cast<uint32_t>(range), static_cast<uint32_t>(range >> 32)},
       generator_of(generator));
}

template <auto& stub, class... Arguments>
bool integers_on_cpu(TensorIteratorBase& iter, const OptionalGenerator& generator,
                     Arguments... arguments) {
  const TensorBase& out = tensor_of(iter);
  if (native_dtype(out.scalar_type())) {
    return false;
  }
  draw_on_cpu("random", out, generator_of(generator),
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

// From 0 to the largest value of the dtype, or to the last of consecutive integers that a float
// has.
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
