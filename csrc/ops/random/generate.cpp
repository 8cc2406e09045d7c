#include "ops/random/generate.h"

#include <algorithm>
#include <vector>

#include "backend/empty.h"
#include "backend/tensor.h"
#include "wgsl/kernel_source.h"
#include "launch/dtypes.h"
#include "runtime/context.h"

namespace torch_webgpu {
namespace {

constexpr PipelineFamily kFamily = PipelineFamily::kGenerate;
constexpr uint32_t kWorkgroup = 256;
constexpr uint32_t kBlock = 4; // elements per invocation

// As `Params` in generate.wgsl.
struct Params {
  uint32_t count;
  uint32_t first;
  uint32_t offset;
  uint32_t input_offset;
  std::array<uint32_t, 2> seed;
  std::array<uint32_t, 2> stream;
  std::array<uint32_t, 8> arguments;
};

std::string format_hook(DType dtype, Kind kind) {
  const uint32_t bytes = info(dtype).bytes;
  std::string value = "v";
  if (dtype == DType::kBool) {
    value = "i_from_b(" + convert(kind, Kind::kBool, value) + ")";
  } else {
    value = convert(kind, info(dtype).kind, value);
  }
  const std::string bits = to_word(dtype, value);
  const std::string type(kind_wgsl(kind));
  std::string rounded = "v";
  if (kind == Kind::kFloat && dtype == DType::kF16) {
    rounded = "round_f16_f(v)";
  } else if (kind == Kind::kFloat && dtype == DType::kBF16) {
    rounded = "round_bf16_f(v)";
  }
  return "const kLanes = " + std::to_string(bytes < 4 ? 4 / bytes : 1) +
         "u;\nconst kWords = " + std::to_string(bytes == 8 ? 2 : 1) + "u;\nfn bits_of(v: " + type +
         ") -> vec2<u32> { return " + (bytes == 8 ? bits : "vec2<u32>(" + bits + ", 0u)") +
         "; }\nfn rounded(v: " + type + ") -> " + type + " { return " + rounded + "; }";
}

PipelineSpec make_pipeline(const GenerateSpec& spec, std::string (*values)(const GenerateSpec&),
                           DType out, const std::optional<DType>& input) {
  KernelSource source;
  source.file = "generate";
  source.operands = {
      {.name = "out", .dtype = out, .slot = 0, .writable = true, .owns_words = true}};
  if (input) {
    source.operands.push_back({.name = "x", .dtype = *input, .slot = 1});
  }
  source.hooks = {{"FORMAT", format_hook(out, spec.kind)}, {"VALUES", values(spec)}};
  return build_kernel(std::string(spec.name), source);
}

// A window of `tensor` that holds `count` elements from `first`; *offset is where they start in it,
// in units of `unit` bytes.
Binding window(const at::TensorBase& tensor, uint64_t first, uint64_t count, uint32_t unit,
               uint32_t* offset) {
  const Buffer& buffer = buffer_of(tensor);
  const uint64_t align = stream().device().caps().storage_offset_alignment;
  const uint64_t begin = byte_offset(tensor) + first * tensor.itemsize();
  const uint64_t end = begin + count * tensor.itemsize();
  Binding binding{&buffer, begin / align * align, 0};
  binding.size = std::min((end + 3) / 4 * 4, buffer.size) - binding.offset;
  *offset = static_cast<uint32_t>((begin - binding.offset) / unit);
  if (buffer.size <= stream().device().caps().max_storage_binding_size) {
    // The whole buffer: bind groups are found again more often.
    *offset = static_cast<uint32_t>(begin / unit);
    return {&buffer, 0, 0};
  }
  return binding;
}

} // namespace

void generate(const at::TensorBase& out, const GenerateSpec& spec,
              std::string (*values)(const GenerateSpec& spec), const at::Tensor& input) {
  if (out.numel() == 0) {
    return;
  }
  if (!out.is_contiguous() || byte_offset(out) % 4 != 0 ||
      (input.defined() && same_buffer(out, input))) {
    const at::Tensor packed = empty_webgpu(out.sizes(), out.scalar_type());
    generate(packed, spec, values, input);
    at::Tensor(out).copy_(packed);
    return;
  }
  const DType dtype = *native_dtype(out.scalar_type());
  std::optional<DType> input_dtype;
  if (input.defined()) {
    input_dtype = native_dtype(input.scalar_type());
  }
  Context& ctx = context();
  const PipelineKey key{kFamily, static_cast<uint64_t>(spec.family) << 32 | spec.op,
                        static_cast<uint64_t>(dtype) |
                            (input_dtype ? 32u + static_cast<uint64_t>(*input_dtype) : 0u) << 8};
  const Pipeline& pipeline =
      ctx.pipelines.get(key, [&] { return make_pipeline(spec, values, dtype, input_dtype); });

  const uint64_t widest =
      std::max<uint64_t>(out.itemsize(), input.defined() ? input.itemsize() : 1);
  const Capabilities& caps = ctx.device.caps();
  const uint64_t chunk =
      (caps.max_storage_binding_size - caps.storage_offset_alignment) / widest / kBlock * kBlock;
  const auto total = static_cast<uint64_t>(out.numel());
  TORCH_CHECK_NOT_IMPLEMENTED(total / kBlock < uint64_t{1} << 32, spec.name, ": too many elements");
  for (uint64_t first = 0; first < total; first += chunk) {
    Params params{};
    params.count = static_cast<uint32_t>(std::min(chunk, total - first));
    params.first = static_cast<uint32_t>(first / kBlock);
    params.seed = spec.philox.key_words();
    params.stream = spec.philox.counter_words();
    params.arguments = spec.arguments;
    std::array<Binding, 2> bindings{window(out, first, params.count, 4, &params.offset)};
    if (input.defined()) {
      bindings[1] = window(input, first, params.count, static_cast<uint32_t>(input.itemsize()),
                           &params.input_offset);
    }
    ctx.stream.dispatch(pipeline, bindings.data(), input.defined() ? 2 : 1, &params, sizeof(params),
                        ctx.stream.grid_1d((params.count + kBlock - 1) / kBlock, kWorkgroup));
  }
}

} // namespace torch_webgpu
