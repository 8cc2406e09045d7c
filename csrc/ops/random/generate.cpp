#include "ops/random/generate.h"

#include <algorithm>
#include <bit>

#include "backend/empty.h"
#include "backend/tensor.h"
#include "launch/binding_list.h"
#include "launch/dtypes.h"
#include "launch/target_scope.h"
#include "ops/random/philox.h"
#include "wgsl/kernel_source.h"

namespace torch_webgpu {
namespace {

namespace kernel = kernels::generate;

constexpr uint32_t kBlock = 4; // elements per invocation

// A value in the output's dtype.
std::string stored_value(kernel::Kind kind, DType to) {
  const Kind from = kind == kernel::Kind::floats ? Kind::kFloat
                    : kind == kernel::Kind::ints ? Kind::kInt
                                                 : Kind::kLong;
  return to == DType::kBool ? "i_from_b(" + convert(from, Kind::kBool, "v") + ")"
                            : convert(from, info(to).kind, "v");
}

// Numbers of 32 bits that one invocation draws.
uint32_t draws(RandomSource source) { return source == RandomSource::kBits64 ? 8 : 4; }

kernel::Source kernel_source(RandomSource source) {
  switch (source) {
  case RandomSource::kBits:
    return kernel::Source::bits;
  case RandomSource::kBits64:
    return kernel::Source::bits64;
  case RandomSource::kNormal:
    return kernel::Source::normal;
  case RandomSource::kTensor:
    return kernel::Source::tensor;
  default:
    return kernel::Source::draws;
  }
}

// Elements [first, first + count) of a contiguous tensor.
at::Tensor piece(const at::TensorBase& tensor, uint64_t first, uint64_t count) {
  if (count == static_cast<uint64_t>(tensor.numel())) {
    return at::Tensor(tensor);
  }
  return at::Tensor(tensor).view({-1}).narrow(0, static_cast<int64_t>(first),
                                              static_cast<int64_t>(count));
}

} // namespace

void generate(const at::TensorBase& out, const GenerateSpec& spec, const at::Tensor& input) {
  if (out.numel() == 0) {
    return;
  }
  if (!out.is_contiguous() || byte_offset(out) % 4 != 0 ||
      (input.defined() && same_buffer(out, input))) {
    const at::Tensor packed = empty_webgpu(out.sizes(), out.scalar_type(), out.device());
    generate(packed, spec, input);
    at::Tensor(out).copy_(packed);
    return;
  }
  const DType dtype = *native_dtype(out.scalar_type());
  const bool narrow = info(dtype).bytes < 4;
  const uint64_t widest =
      std::max<uint64_t>(out.itemsize(), input.defined() ? input.itemsize() : 1);
  const ShaderTarget& target = plan_target(out);
  // Bindings start at the alignment of windows, which may be wider than the device's own.
  const uint64_t chunk = BindingList::safe_reach(target) / widest / kBlock * kBlock;
  const auto total = static_cast<uint64_t>(out.numel());
  TORCH_CHECK_NOT_IMPLEMENTED(total / kBlock < uint64_t{1} << 32, spec.name, ": too many elements");
  uint64_t count = 0;
  for (uint64_t first = 0; first < total; first += count) {
    count = std::min(chunk, total - first);
    if (narrow && count > kBlock) {
      count = count / kBlock * kBlock; // whole words; a second dispatch stores the rest
    }
    const bool whole = count % kBlock == 0;
    kernel::Launch launch(spec.name);
    launch.out(piece(out, first, count));
    if (input.defined()) {
      launch.x(piece(input, first, count));
    }
    if (narrow && whole) {
      launch.own_words_of_out();
    }
    launch.table(spec.table).row(spec.row).source(spec.source).kind(spec.kind).whole(whole);
    launch.run({.count = static_cast<uint32_t>(count),
                .first = static_cast<uint32_t>(first / kBlock),
                .philox = philox_words(spec.philox),
                .s = std::bit_cast<std::array<std::array<uint32_t, 4>, 2>>(spec.arguments)},
               launch.grid_of((count + kBlock - 1) / kBlock), [&] {
                 return kernel::Regions{.value = std::string(spec.value),
                                        .stored = stored_value(spec.kind, dtype)};
               });
  }
}

void draw_row(RandomOp op, const at::TensorBase& out, GeneratorImpl& generator,
              std::array<uint32_t, 8> arguments, const at::Tensor& input) {
  if (out.numel() == 0) {
    return;
  }
  const RandomRow& of = row(op);
  GenerateSpec spec;
  spec.name = of.name.data();
  spec.table = kernel::Table::random_rows;
  spec.row = static_cast<uint32_t>(op);
  spec.source = kernel_source(of.source);
  spec.kind = of.source == RandomSource::kBits64 ? kernel::Kind::longs : kernel::Kind::floats;
  spec.value = of.value;
  spec.arguments = arguments;
  spec.philox = generator.philox_state(draws(of.source));
  generate(out, spec, input);
}

} // namespace torch_webgpu
