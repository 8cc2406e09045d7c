#include "ops/movement/movement_map.h"

#include <array>
#include <string>

#include "wgsl/kernel_source.h"
#include "launch/binding_list.h"
#include "launch/common.h"
#include "launch/dtypes.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

constexpr PipelineFamily kFamily = PipelineFamily::kPadMap;
constexpr uint32_t kMaxDims = 12;
constexpr uint32_t kWorkgroup = 256;

// Mirrors Params of pad_map.wgsl.
struct Params {
  uint32_t count;
  uint32_t rank;
  uint32_t walked_offset;
  uint32_t mapped_offset;
  struct Dim {
    uint32_t size;
    uint32_t walked_stride;
    uint32_t mapped_stride;
    uint32_t mapped_size;
    int32_t shift;
    uint32_t unused[3];
  } dims[kMaxDims];
};

std::string map_hook(CoordinateMap map) {
  const std::string signature = "fn map_coordinate(c: i32, size: i32) -> i32 { ";
  switch (map) {
  case CoordinateMap::kReflect:
    return signature + "let m = abs(c); return select(m, 2 * size - 2 - m, m >= size); }";
  case CoordinateMap::kReplicate:
    return signature + "return clamp(c, 0, size - 1); }";
  default:
    return signature + "return select(c, c + size, c < 0); }";
  }
}

void launch(const char* name, CoordinateMap map, bool adds, DType dtype, const Tensor& walked,
            const Tensor& mapped, at::IntArrayRef shifts) {
  if (walked.numel() == 0) {
    return;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(walked.numel() < int64_t{1} << 31, name,
                              "(): more than 2^31 elements");
  Params params{};
  params.count = static_cast<uint32_t>(walked.numel());
  params.rank = bounded_rank(name, walked.dim(), kMaxDims);
  params.walked_offset = static_cast<uint32_t>(byte_offset(walked) / walked.itemsize());
  params.mapped_offset = static_cast<uint32_t>(byte_offset(mapped) / mapped.itemsize());
  for (uint32_t k = 0; k < params.rank; ++k) {
    const int64_t d = params.rank - 1 - k;
    params.dims[k] = {
        static_cast<uint32_t>(walked.size(d)),   static_cast<uint32_t>(walked.stride(d)),
        static_cast<uint32_t>(mapped.stride(d)), static_cast<uint32_t>(mapped.size(d)),
        static_cast<int32_t>(shifts[d]),         {}};
  }
  const Tensor& out = adds ? mapped : walked;
  const Tensor& in = adds ? walked : mapped;
  BindingList bindings(name);
  bindings.operand("out", out, dtype, true);
  const uint32_t in_slot = bindings.operand("in", in, dtype).slot;
  Context& ctx = context();
  const PipelineKey key{kFamily, static_cast<uint64_t>(map),
                        static_cast<uint64_t>(dtype) | (adds ? 1u << 8 : 0u) | in_slot << 9};
  const Pipeline& pipeline = ctx.pipelines.get(bindings.key(key), [&] {
    KernelSource source;
    source.file = "pad_map";
    source.operands = {{"out", dtype, 0, true}, {"in", dtype, in_slot}};
    source.operands[0].atomic_add = adds;
    source.hooks = {{"map_coordinate", map_hook(map)}};
    if (adds) {
      source.hooks.emplace_back("move_element", "fn move_element(walked: u32, mapped: u32) "
                                                "{ atomic_add_out(mapped, load_in(walked)); }");
    }
    source.windows = bindings.windows();
    return build_kernel(name, source);
  });
  bindings.dispatch(pipeline, params, ctx.stream.grid_1d(params.count, kWorkgroup));
}

} // namespace

void map_elements(const char* name, CoordinateMap map, const Tensor& out, const Tensor& in,
                  at::IntArrayRef shifts) {
  launch(name, map, false, raw_dtype(out.scalar_type()), out, in, shifts);
}

void add_mapped_elements(const char* name, CoordinateMap map, const Tensor& out, const Tensor& in,
                         at::IntArrayRef shifts) {
  const auto dtype = native_dtype(out.scalar_type());
  TORCH_CHECK_NOT_IMPLEMENTED(dtype, name, "(): there is no kernel for ", out.scalar_type());
  launch(name, map, true, *dtype, in, out, shifts);
}

} // namespace torch_webgpu
