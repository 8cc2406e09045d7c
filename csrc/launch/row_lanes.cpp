#include "launch/row_lanes.h"

#include <algorithm>
#include <bit>

namespace torch_webgpu {

RowLanes::RowLanes(uint32_t length, uint32_t inner, uint32_t elements_per_lane) {
  // Where rows are interleaved, neighbouring rows are read together.
  constexpr uint32_t kNeighbours = 32;
  lanes_first = inner == 1 ? 1 : 0;
  const uint32_t limit =
      inner == 1 ? kWorkgroup : kWorkgroup / std::min(std::bit_ceil(inner), kNeighbours);
  const uint32_t wanted =
      std::bit_ceil(std::max((length + elements_per_lane - 1) / elements_per_lane, 1u));
  lanes_log2 = static_cast<uint32_t>(std::countr_zero(std::min(wanted, limit)));
}

uint32_t RowLanes::items(uint32_t length, uint32_t unit, uint32_t limit) const {
  return std::clamp(std::bit_ceil((length + lanes() - 1) / lanes()), unit, limit);
}

} // namespace torch_webgpu
