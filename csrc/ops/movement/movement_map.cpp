#include "ops/movement/movement_map.h"

#include <tuple>

#include "kernels/movement_map.h"
#include "launch/common.h"
#include "launch/halves.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
namespace kernel = kernels::movement_map;

static_assert(std::tuple_size_v<decltype(kernel::Params::dims)> == kMaxMappedDims);

kernel::Map kernel_map(CoordinateMap map) {
  switch (map) {
  case CoordinateMap::kReflect:
    return kernel::Map::reflect;
  case CoordinateMap::kReplicate:
    return kernel::Map::replicate;
  default:
    return kernel::Map::wrap;
  }
}

void launch_map(const char* name, CoordinateMap map, bool adds, const Tensor& walked,
                const Tensor& mapped, at::IntArrayRef shifts) {
  if (walked.numel() == 0) {
    return;
  }
  if (!is_countable(walked)) {
    in_halves(walked.sizes(), -1, [&](int64_t along, int64_t begin, int64_t size) {
      c10::SmallVector<int64_t, kMaxMappedDims> moved(shifts.begin(), shifts.end());
      // A dimension that is mapped to itself is halved in both tensors.
      const bool same = shifts[along] == 0 && walked.size(along) == mapped.size(along);
      moved[along] -= same ? 0 : begin;
      launch_map(name, map, adds, walked.narrow(along, begin, size),
                 same ? mapped.narrow(along, begin, size) : mapped, moved);
    });
    return;
  }
  kernel::Params params;
  params.count = static_cast<uint32_t>(walked.numel());
  params.rank = bounded_rank(name, walked.dim(), kMaxMappedDims);
  for (uint32_t k = 0; k < params.rank; ++k) {
    const int64_t d = params.rank - 1 - k;
    params.shifts[k / 4][k % 4] = static_cast<int32_t>(shifts[d]);
    params.dims[k] = {
        static_cast<uint32_t>(walked.size(d)), static_cast<uint32_t>(walked.stride(d)),
        static_cast<uint32_t>(mapped.stride(d)), static_cast<uint32_t>(mapped.size(d))};
  }
  kernel::Launch launch(name);
  if (adds) {
    launch.sum(mapped).terms(walked);
  } else {
    launch.out(walked).in(mapped);
  }
  launch.map(kernel_map(map));
  launch.run(params, launch.grid_of(params.count), kernel::params_bytes(params.rank));
}

} // namespace

void map_elements(const char* name, CoordinateMap map, const Tensor& out, const Tensor& in,
                  at::IntArrayRef shifts) {
  launch_map(name, map, false, out, in, shifts);
}

void add_mapped_elements(const char* name, CoordinateMap map, const Tensor& out, const Tensor& in,
                         at::IntArrayRef shifts) {
  launch_map(name, map, true, in, out, shifts);
}

} // namespace torch_webgpu
