// nonzero, masked_select and masked_scatter_: what is chosen keeps its order. Three dispatches:
// count by blocks, add the counts up, write.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <string>

#include "backend/empty.h"
#include "wgsl/kernel_source.h"
#include "launch/binding_list.h"
#include "launch/common.h"
#include "launch/dtypes.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

constexpr PipelineFamily kFamily = PipelineFamily::kSelect;
constexpr int64_t kBlock = 2048;
constexpr uint32_t kMaxDims = 16;

enum class Stage : uint8_t { kCount, kScan, kNonzero, kSelect, kScatter };

// Mirrors Params of select_write.wgsl.
struct WriteParams {
  uint32_t count;
  uint32_t mask_offset;
  uint32_t limit;
  uint32_t out_offset;
  uint32_t in_offset;
  uint32_t rank;
  uint32_t row_stride;
  uint32_t column_stride;
  uint32_t sizes[kMaxDims][4];
};

std::string is_selected_hook(DType dtype, const char* operand) {
  return std::string("fn is_selected(i: u32) -> bool { return ") +
         convert(info(dtype).kind, Kind::kBool, std::string("load_") + operand + "(i)") + "; }";
}

// The number of nonzero elements before each block of `mask`, then their total.
Tensor count_selected(const Tensor& mask) {
  const int64_t blocks = (mask.numel() + kBlock - 1) / kBlock;
  const Tensor counts = empty_webgpu({blocks + 1}, at::kInt);
  Context& ctx = context();
  const DType dtype = operand_dtype("nonzero", "mask", mask.scalar_type());
  struct {
    uint32_t count, in_offset;
  } params{static_cast<uint32_t>(mask.numel()), element_begin(mask)};
  BindingList bindings("nonzero");
  bindings.add(counts);
  bindings.add(mask);
  const PipelineKey key{kFamily, static_cast<uint64_t>(Stage::kCount),
                        static_cast<uint64_t>(dtype)};
  const Pipeline& count = ctx.pipelines.get(bindings.key(key), [&] {
    KernelSource source;
    source.file = "select_count";
    source.operands = {{"out", DType::kBits32, 0, true}, {"in", dtype, 1}};
    source.hooks = {{"is_selected", is_selected_hook(dtype, "in")}};
    source.windows = bindings.windows();
    return build_kernel("select_count", source);
  });
  bindings.dispatch(count, params, ctx.stream.grid_1d(blocks, 1));

  const auto scan_count = static_cast<uint32_t>(blocks);
  BindingList sums("nonzero");
  sums.add(counts);
  const PipelineKey scan_key{kFamily, static_cast<uint64_t>(Stage::kScan), 0};
  const Pipeline& scan = ctx.pipelines.get(sums.key(scan_key), [&] {
    KernelSource source;
    source.windows = sums.windows();
    source.file = "select_scan";
    source.operands = {{"out", DType::kBits32, 0, true}};
    return build_kernel("select_scan", source);
  });
  sums.dispatch(scan, scan_count, {1, 1, 1});
  return counts;
}

int64_t read_total(const Tensor& counts) {
  uint32_t total = 0;
  stream().read(buffer_of(counts), byte_offset(counts) + (counts.numel() - 1) * 4, &total, 4);
  return total;
}

std::string emit_hook(Stage stage) {
  if (stage == Stage::kSelect) {
    return "fn emit(i: u32, number: u32) {\n"
           "  if (number < p.limit) { store_out(p.out_offset + number, load_in(p.in_offset + i)); }"
           "\n}";
  }
  return "fn emit(i: u32, number: u32) {\n"
         "  if (number < p.limit) { store_out(p.out_offset + i, load_in(p.in_offset + number)); }"
         "\n}";
}

// `in` is not used by kNonzero, whose `out` may have any strides. All other tensors are contiguous.
void write_selected(Stage stage, const char* name, const Tensor& mask, const Tensor& counts,
                    const Tensor& out, const Tensor& in, int64_t limit) {
  WriteParams params{};
  params.count = static_cast<uint32_t>(mask.numel());
  params.mask_offset = element_begin(mask);
  params.limit = static_cast<uint32_t>(limit);
  params.out_offset = element_begin(out);
  params.rank = bounded_rank(name, mask.dim(), kMaxDims);
  for (uint32_t d = 0; d < params.rank; ++d) {
    params.sizes[d][0] = static_cast<uint32_t>(mask.size(params.rank - 1 - d));
  }
  if (stage == Stage::kNonzero) {
    params.row_stride = static_cast<uint32_t>(out.stride(0));
    params.column_stride = static_cast<uint32_t>(out.stride(1));
  }
  BindingList bindings(name);
  const DType mask_dtype = operand_dtype(name, "mask", mask.scalar_type());
  const DType bits = raw_dtype(out.scalar_type());
  std::vector<Operand> operands = {bindings.operand("out", out, bits, true),
                                   bindings.operand("mask", mask, mask_dtype),
                                   bindings.operand("before", counts, DType::kBits32)};
  if (stage != Stage::kNonzero) {
    params.in_offset = element_begin(in);
    operands.push_back(bindings.operand("in", in, bits));
  }
  Context& ctx = context();
  OperandKey key;
  for (const Operand& operand : operands) {
    key.add(operand.dtype, operand.slot);
  }
  const PipelineKey stage_key = key.in({kFamily, static_cast<uint64_t>(stage)});
  const Pipeline& pipeline = ctx.pipelines.get(bindings.key(stage_key), [&] {
    KernelSource source;
    source.windows = bindings.windows();
    source.file = "select_write";
    source.operands = operands;
    source.hooks = {{"is_selected", is_selected_hook(mask_dtype, "mask")}};
    if (stage != Stage::kNonzero) {
      source.hooks.emplace_back("emit", emit_hook(stage));
    }
    return build_kernel(name, source);
  });
  const int64_t blocks = (mask.numel() + kBlock - 1) / kBlock;
  bindings.dispatch(pipeline, params, ctx.stream.grid_1d(blocks, 1));
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
  TORCH_CHECK_NOT_IMPLEMENTED(mask.numel() < int64_t{1} << 31, name, "(): more than 2^31 elements");
}

Tensor& nonzero_out(const Tensor& self, Tensor& result) {
  check_same_device("nonzero", {{self, "self"}, {result, "out"}});
  TORCH_CHECK(result.scalar_type() == at::kLong,
              "nonzero: Expected out tensor to have scalar type "
              "Long but got scalar type",
              result.scalar_type());
  at::assert_no_internal_overlap(result);
  at::assert_no_overlap(result, self);
  check_countable("nonzero", self);
  Tensor mask;
  Tensor counts;
  int64_t total = 0;
  if (self.numel() != 0) {
    mask = native_dtype(self.scalar_type()) ? self.contiguous() : self.ne(0).contiguous();
    counts = count_selected(mask);
    total = read_total(counts);
  }
  if (at::native::resize_output(result, {total, self.dim()})) {
    result.as_strided_({total, self.dim()}, {1, total}); // a dense column for each dimension
  }
  if (result.numel() != 0) {
    write_selected(Stage::kNonzero, "nonzero", mask, counts, result, {}, total);
  }
  return result;
}

Tensor nonzero(const Tensor& self) {
  Tensor result = empty_webgpu({0}, at::kLong);
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
    write_selected(Stage::kNonzero, "nonzero_static", mask, count_selected(mask), result, {}, size);
  }
  return result;
}

Tensor nonzero_static(const Tensor& self, int64_t size, int64_t fill_value) {
  Tensor result = empty_webgpu({0}, at::kLong);
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
  check_countable("masked_select", chosen);
  if (chosen.numel() == 0) {
    at::native::resize_output(result, {0});
    return result;
  }
  const Tensor counts = count_selected(chosen);
  const int64_t total = read_total(counts);
  at::native::resize_output(result, {total});
  if (total != 0) {
    const Tensor written = writable(result);
    write_selected(Stage::kSelect, "masked_select", chosen, counts, written, in, total);
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
              mask.dtype());
  const Tensor chosen = at::expand_inplace(self, mask, "masked_scatter_")->contiguous();
  check_countable("masked_scatter_", chosen);
  if (self.numel() == 0) {
    return self;
  }
  const Tensor counts = count_selected(chosen);
  // Whoever brings fewer elements than there could be ones waits for the count of them.
  TORCH_CHECK(source.numel() >= chosen.numel() || read_total(counts) <= source.numel(),
              "Number of elements of source < number of ones in mask");
  const Tensor in =
      same_buffer(source, self) ? source.clone(at::MemoryFormat::Contiguous) : source.contiguous();
  const Tensor out = self.contiguous();
  write_selected(Stage::kScatter, "masked_scatter_", chosen, counts, out, in, in.numel());
  deliver(self, out);
  return self;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
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
