#include "launch/kernel_args.h"

#include <algorithm>
#include <bit>

#include "backend/tensor.h"
#include "launch/dtypes.h"

namespace torch_webgpu {
namespace {

uint64_t end_of(const at::Tensor& tensor, uint64_t begin) {
  if (tensor.numel() == 0) {
    return begin;
  }
  uint64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    last += static_cast<uint64_t>(tensor.stride(d)) * (tensor.size(d) - 1);
  }
  return begin + (last + 1) * tensor.itemsize();
}

} // namespace

uint32_t KernelArgs::add(std::string_view name, const at::Tensor& tensor, bool writable,
                         bool owns_words) {
  const DType dtype = operand_dtype(op_, name, tensor.scalar_type());
  const uint64_t begin = byte_offset(tensor);
  const uint32_t slot =
      bindings_.add(buffer_of(tensor), tensor.itemsize(), begin, end_of(tensor, begin));
  if (owns_words) {
    bindings_.require_one_binding(slot);
  }
  TORCH_INTERNAL_ASSERT(count_ < kMax, op_, "(): too many operands");
  key_.add(dtype, slot);
  operands_[count_++] = {name, dtype, slot, writable, false, owns_words};
  return static_cast<uint32_t>((begin - bindings_.base(slot)) / tensor.itemsize());
}

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

} // namespace torch_webgpu
