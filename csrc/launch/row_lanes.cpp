#include "launch/row_lanes.h"

#include <algorithm>
#include <bit>

#include "backend/tensor.h"
#include "launch/target_scope.h"

namespace torch_webgpu {

RowLanes::RowLanes(uint32_t length, uint32_t inner, uint32_t elements_per_lane, uint32_t workgroup)
    : workgroup(workgroup) {
  // Where rows are interleaved, neighbouring rows are read together.
  constexpr uint32_t kNeighbours = 32;
  lanes_first = inner == 1 ? 1 : 0;
  const uint32_t limit =
      inner == 1 ? workgroup : workgroup / std::min(std::bit_ceil(inner), kNeighbours);
  const uint32_t wanted =
      std::bit_ceil(std::max((length + elements_per_lane - 1) / elements_per_lane, 1u));
  lanes_log2 = static_cast<uint32_t>(std::countr_zero(std::min(wanted, limit)));
}

bool RowLanes::suits_one(uint32_t length, const ShaderTarget& target) {
  constexpr uint32_t kLongest = 1024; // beyond that, the lanes' loads cost more than barriers
  return is_software(target) && length <= kLongest;
}

uint32_t RowLanes::items(uint32_t length, uint32_t unit, uint32_t limit) const {
  return std::clamp(std::bit_ceil((length + lanes() - 1) / lanes()), unit, limit);
}

bool are_row_vectors(int64_t rows, int64_t length, const at::TensorBase& y,
                     std::initializer_list<const at::TensorBase*> operands, uint32_t max_vectors) {
  const auto fits = [&](const at::TensorBase& operand) {
    return operand.scalar_type() == y.scalar_type() && byte_offset(operand) % kVectorBytes == 0;
  };
  const int64_t bytes = length * static_cast<int64_t>(y.itemsize());
  return rows * length < int64_t{1} << 31 && bytes % kVectorBytes == 0 &&
         bytes <= kVectorBytes * max_vectors && fits(y) &&
         std::ranges::all_of(operands, [&](const at::TensorBase* operand) {
           return !operand->defined() || fits(*operand);
         });
}

} // namespace torch_webgpu
