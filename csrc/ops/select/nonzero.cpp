// nonzero, masked_select and masked_scatter_: the selected elements keep their order. Three
// dispatches: count by blocks, add the counts up, write.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/cat.h>

#include <vector>

#include "backend/empty.h"
#include "backend/graph.h"
#include "backend/registration.h"
#include "kernels/nonzero_count.h"
#include "kernels/nonzero_scan.h"
#include "kernels/nonzero_write.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "launch/halves.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

constexpr int64_t kBlock = 2048; // elements of a mask that a workgroup takes

int64_t blocks_of(const Tensor& mask) { return (mask.numel() + kBlock - 1) / kBlock; }

// The number of nonzero elements before each block of `mask`, then their total.
Tensor count_selected(const char* name, const Tensor& mask) {
  const int64_t blocks = blocks_of(mask);
  const Tensor counts = empty_webgpu({blocks + 1}, at::kInt, mask.device());
  kernels::nonzero_count::Launch count(name);
  count.counts_as(DType::kBits32, counts).mask(mask);
  count.run({.count = static_cast<uint32_t>(mask.numel())});
  kernels::nonzero_scan::Launch scan(name);
  scan.counts_as(DType::kBits32, counts);
  scan.run({.count = static_cast<uint32_t>(blocks)});
  return counts;
}

int64_t read_total(const char* name, const Tensor& counts) {
  check_not_capturing(name, "its result's size depends on data, and is read on the host");
  uint32_t total = 0;
  context_of(counts).stream.read(buffer_of(counts), byte_offset(counts) + (counts.numel() - 1) * 4,
                                 &total, 4);
  return total;
}

// The coordinates of the first `limit` selected elements, one row each. `mask` is contiguous.
void write_coordinates(const char* name, const Tensor& mask, const Tensor& counts,
                       const Tensor& out, int64_t limit) {
  namespace kernel = kernels::nonzero_write;
  kernel::Params params;
  params.count = static_cast<uint32_t>(mask.numel());
  params.limit = static_cast<uint32_t>(limit);
  params.rank = bounded_rank(name, mask.dim(), static_cast<uint32_t>(params.sizes.size()));
  params.row_stride = static_cast<uint32_t>(out.stride(0));
  params.column_stride = static_cast<uint32_t>(out.stride(1));
  for (uint32_t d = 0; d < params.rank; ++d) {
    params.sizes[d][0] = static_cast<uint32_t>(mask.size(params.rank - 1 - d));
  }
  kernel::Launch launch(name);
  launch.coordinates(out).mask(mask).before_as(DType::kBits32, counts).scatters(false);
  launch.run(params, kernel::params_bytes(params.rank));
}

// Moves selected elements of `in` to the front of `out`, or scatters those at the front of `in` to
// the selected places of `out`, `limit` of them at most. All tensors are contiguous.
void move_selected(const char* name, bool scatters, const Tensor& mask, const Tensor& counts,
                   const Tensor& out, const Tensor& in, int64_t limit) {
  namespace kernel = kernels::nonzero_write;
  kernel::Launch launch(name);
  launch.out(out).in(in).mask(mask).before_as(DType::kBits32, counts).scatters(scatters);
  launch.run({.count = static_cast<uint32_t>(mask.numel()), .limit = static_cast<uint32_t>(limit)},
             kernel::params_bytes(0));
}

// Copies into `result` if the kernel could not write to it directly.
void deliver(const Tensor& result, const Tensor& written) {
  if (!written.is_same(result)) {
    result.copy_(written);
  }
}

Tensor writable(const Tensor& result) {
  return result.is_contiguous() ? result : empty_webgpu(result.sizes(), result.options());
}

void check_countable(const char* name, const Tensor& mask) {
  TORCH_CHECK_NOT_IMPLEMENTED(is_countable(mask), name, "(): more than 2^31 elements");
}

Tensor nonzero(const Tensor& self);
Tensor masked_select(const Tensor& self, const Tensor& mask);

// Coordinates come in row-major order, so those of the second half follow.
Tensor nonzero_in_halves(const Tensor& self) {
  std::vector<Tensor> parts;
  in_halves(self.sizes(), -1, [&](int64_t along, int64_t begin, int64_t size) {
    parts.push_back(nonzero(self.narrow(along, begin, size)));
    parts.back().select(1, along).add_(begin);
  });
  return at::cat(parts);
}

Tensor& nonzero_out(const Tensor& self, Tensor& result) {
  check_same_device("nonzero", {{self, "self"}, {result, "out"}});
  TORCH_CHECK(result.scalar_type() == at::kLong,
              "nonzero: Expected out tensor to have scalar type "
              "Long but got scalar type",
              result.scalar_type());
  at::assert_no_internal_overlap(result);
  at::assert_no_overlap(result, self);
  if (!is_countable(self)) {
    Tensor found = nonzero_in_halves(self);
    at::native::resize_output(result, found.sizes());
    return result.copy_(found);
  }
  Tensor mask;
  Tensor counts;
  int64_t total = 0;
  if (self.numel() != 0) {
    mask = native_dtype(self.scalar_type()) ? self.contiguous() : self.ne(0).contiguous();
    counts = count_selected("nonzero", mask);
    total = read_total("nonzero", counts);
  }
  if (at::native::resize_output(result, {total, self.dim()})) {
    result.as_strided_({total, self.dim()}, {1, total}); // a dense column for each dimension
  }
  if (result.numel() != 0) {
    write_coordinates("nonzero", mask, counts, result, total);
  }
  return result;
}

Tensor nonzero(const Tensor& self) {
  Tensor result = empty_webgpu({0}, at::kLong, self.device());
  return nonzero_out(self, result);
}

Tensor& nonzero_static_out(const Tensor& self, int64_t size, int64_t fill_value, Tensor& result) {
  check_same_device("nonzero_static", {{self, "self"}, {result, "out"}});
  TORCH_CHECK(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
  TORCH_CHECK(result.scalar_type() == at::kLong,
              "nonzero_static: Expected out tensor to have scalar type Long but got scalar type",
              result.scalar_type());
  check_countable("nonzero_static", self);
  at::native::resize_output(result, {size, self.dim()});
  result.fill_(fill_value);
  if (result.numel() != 0 && self.numel() != 0) {
    const Tensor mask =
        native_dtype(self.scalar_type()) ? self.contiguous() : self.ne(0).contiguous();
    write_coordinates("nonzero_static", mask, count_selected("nonzero_static", mask), result, size);
  }
  return result;
}

Tensor nonzero_static(const Tensor& self, int64_t size, int64_t fill_value) {
  Tensor result = empty_webgpu({0}, at::kLong, self.device());
  return nonzero_static_out(self, size, fill_value, result);
}

Tensor& masked_select_out(const Tensor& self, const Tensor& mask, Tensor& result) {
  check_same_device("masked_select", {{self, "self"}, {mask, "mask"}, {result, "out"}});
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  TORCH_CHECK(self.scalar_type() == result.scalar_type(),
              "masked_select(): self and result must have the same scalar type");
  at::assert_no_internal_overlap(result);
  at::assert_no_overlap(result, self);
  at::assert_no_overlap(result, mask);
  const auto expanded = at::expand_outplace(mask, self);
  const Tensor chosen = std::get<0>(expanded)->contiguous();
  const Tensor in = std::get<1>(expanded)->contiguous();
  if (!is_countable(chosen)) {
    std::vector<Tensor> parts;
    in_halves(chosen.sizes(), -1, [&](int64_t along, int64_t begin, int64_t size) {
      parts.push_back(
          masked_select(in.narrow(along, begin, size), chosen.narrow(along, begin, size)));
    });
    at::native::resize_output(result, {parts[0].numel() + parts[1].numel()});
    return at::cat_out(result, parts);
  }
  if (chosen.numel() == 0) {
    at::native::resize_output(result, {0});
    return result;
  }
  const Tensor counts = count_selected("masked_select", chosen);
  const int64_t total = read_total("masked_select", counts);
  at::native::resize_output(result, {total});
  if (total != 0) {
    const Tensor written = writable(result);
    move_selected("masked_select", false, chosen, counts, written, in, total);
    deliver(result, written);
  }
  return result;
}

Tensor masked_select(const Tensor& self, const Tensor& mask) {
  Tensor result = empty_webgpu({0}, self.options());
  return masked_select_out(self, mask, result);
}

Tensor& masked_scatter_(Tensor& self, const Tensor& mask, const Tensor& source) {
  check_same_device("masked_scatter_", {{self, "self"}, {mask, "mask"}, {source, "source"}});
  at::assert_no_internal_overlap(self);
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "masked_scatter: expected self and source to have same dtypes but got ",
              self.scalar_type(), " and ", source.scalar_type());
  TORCH_CHECK(mask.scalar_type() == at::kBool,
              "masked_scatter_ only supports boolean masks, but got mask with dtype ",
              mask.scalar_type());
  const Tensor chosen = at::expand_inplace(self, mask, "masked_scatter_")->contiguous();
  check_countable("masked_scatter_", chosen);
  if (self.numel() == 0) {
    return self;
  }
  const Tensor counts = count_selected("masked_scatter_", chosen);
  // Waits for the device only if `source` has fewer elements than the mask. Then the number of ones
  // in the mask is read back and compared.
  TORCH_CHECK(source.numel() >= chosen.numel() ||
                  read_total("masked_scatter_", counts) <= source.numel(),
              "Number of elements of source < number of ones in mask");
  const Tensor in =
      same_buffer(source, self) ? source.clone(at::MemoryFormat::Contiguous) : source.contiguous();
  const Tensor out = self.contiguous();
  move_selected("masked_scatter_", true, chosen, counts, out, in, in.numel());
  deliver(self, out);
  return self;
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("nonzero", TORCH_FN(nonzero));
  m.impl("nonzero.out", TORCH_FN(nonzero_out));
  m.impl("nonzero_static", TORCH_FN(nonzero_static));
  m.impl("nonzero_static.out", TORCH_FN(nonzero_static_out));
  m.impl("masked_select", TORCH_FN(masked_select));
  m.impl("masked_select.out", TORCH_FN(masked_select_out));
  m.impl("masked_scatter_", TORCH_FN(masked_scatter_));
}

} // namespace
} // namespace torch_webgpu
