// searchsorted, bucketize and isin.
#include <ATen/native/BucketizationUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorCompare.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <torch/library.h>

#include <array>
#include <string>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "wgsl/kernel_source.h"
#include "launch/binding_list.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "ops/sort/sort_launch.h"

namespace torch_webgpu {
namespace {

using at::Scalar;
using at::Tensor;
using Side = std::optional<std::string_view>;

constexpr PipelineFamily kFamily = PipelineFamily::kSearchSorted;
constexpr uint32_t kWorkgroup = 256;

// Mirrors Params of sort_search.wgsl.
struct Params {
  uint32_t count;
  uint32_t values_row;
  uint32_t boundaries_row;
  uint32_t shared_row;
  uint32_t right;
  uint32_t values_offset;
  uint32_t boundaries_offset;
  uint32_t sorter_offset;
  uint32_t out_offset;
};

// How NaN compares with other values.
enum class NanOrder : uint8_t {
  kLast,    // as in sorting: greater than all, and equal to another NaN
  kNothing, // as the CPU and CUDA search: no boundary is to the right of NaN, nor NaN of a value
};

// All tensors contiguous, values and boundaries of one native dtype; `sorter` may be undefined.
void search_rows(const Tensor& boundaries, const Tensor& values, const Tensor& sorter, bool right,
                 NanOrder nans, const Tensor& out) {
  TORCH_CHECK_NOT_IMPLEMENTED(values.numel() < int64_t{1} << 31 && boundaries.numel() < int64_t{1}
                                                                                            << 31,
                              "searchsorted(): more than 2^31 elements");
  Params params{};
  params.count = static_cast<uint32_t>(values.numel());
  params.values_row = values.dim() == 0 ? 1 : static_cast<uint32_t>(values.size(-1));
  params.boundaries_row = static_cast<uint32_t>(boundaries.size(-1));
  params.shared_row = boundaries.dim() == 1 ? 1 : 0;
  params.right = right ? 1 : 0;
  params.values_offset = element_begin(values);
  params.boundaries_offset = element_begin(boundaries);
  params.out_offset = element_begin(out);
  BindingList bindings("searchsorted");
  const DType dtype = operand_dtype("searchsorted", "values", values.scalar_type());
  const bool out_int32 = out.scalar_type() == at::kInt;
  const bool skips_nans = nans == NanOrder::kNothing && info(dtype).kind == Kind::kFloat;
  std::vector<Operand> operands = {
      bindings.operand("out", out, out_int32 ? DType::kBits32 : DType::kBits64, true),
      bindings.operand("values", values, dtype), bindings.operand("boundaries", boundaries, dtype)};
  if (sorter.defined()) {
    params.sorter_offset = element_begin(sorter);
    operands.push_back(bindings.operand("sorter", sorter, DType::kBits64));
  }
  OperandKey key;
  for (const Operand& operand : operands) {
    key.add(operand.dtype, operand.slot);
  }
  Context& ctx = context();
  const Pipeline& pipeline = ctx.pipelines.get(bindings.key(key.in({kFamily, skips_nans ? 1u : 0u})), [&] {
    KernelSource source;
    source.file = "sort_search";
    source.operands = operands;
    source.windows = bindings.windows();
    source.hooks = {{"key", sort_key_hook(dtype)}};
    if (sorter.defined()) {
      source.hooks.emplace_back(
          "boundary", "fn boundary(row: u32, position: u32) -> key_t {\n"
                      "  let place = load_sorter(p.sorter_offset + row + position).x;\n"
                      "  return key_of(load_boundaries(p.boundaries_offset + row + place));\n}");
    }
    if (skips_nans) {
      // The key of NaN, and of nothing else.
      source.hooks.emplace_back("unordered", "fn unordered(a: key_t, b: key_t) -> bool {\n"
                                             "  return a == last_key || b == last_key;\n}");
    }
    if (out_int32) {
      source.hooks.emplace_back(
          "emit", "fn emit(i: u32, place: u32) { store_out(p.out_offset + i, place); }");
    }
    return build_kernel("searchsorted", source);
  });
  bindings.dispatch(pipeline, params, ctx.stream.grid_1d(params.count, kWorkgroup));
}

Tensor& searchsorted_out(const Tensor& boundaries, const Tensor& values, bool out_int32, bool right,
                         Side side, const std::optional<Tensor>& sorter_opt, Tensor& out) {
  Tensor sorter = sorter_opt.value_or(Tensor());
  check_same_device("searchsorted_out", {{out, "out"}, {boundaries, "sorted_sequence"}});
  at::native::searchsorted_pre_check(boundaries, values, out, out_int32, right, side, sorter);
  at::native::resize_output(out, values.sizes());
  const bool is_right = side ? *side == "right" : right;
  if (values.numel() == 0) {
    return out;
  }
  const at::ScalarType type = at::result_type(boundaries, values);
  if (!native_dtype(type) || c10::isComplexType(type)) {
    note_fallback("aten::searchsorted", c10::toString(type));
    const std::optional<Tensor> host_sorter =
        sorter.defined() ? std::optional<Tensor>(sorter.cpu()) : std::nullopt;
    out.copy_(at::searchsorted(boundaries.cpu(), values.cpu(), out_int32, is_right, std::nullopt,
                               host_sorter));
    return out;
  }
  if (sorter.defined()) {
    sorter = sorter.contiguous();
  }
  const Tensor rows = boundaries.to(type).contiguous();
  const Tensor sought = values.to(type).contiguous();
  const Tensor written = out.is_contiguous() ? out : empty_webgpu(out.sizes(), out.options());
  search_rows(rows, sought, sorter, is_right, NanOrder::kNothing, written);
  if (!written.is_same(out)) {
    out.copy_(written);
  }
  return out;
}

Tensor search(const Tensor& boundaries, const Tensor& values, bool out_int32, bool right, Side side,
              const std::optional<Tensor>& sorter) {
  Tensor out = empty_webgpu({0}, out_int32 ? at::kInt : at::kLong);
  return searchsorted_out(boundaries, values, out_int32, right, side, sorter, out);
}

// A number promotes as in arithmetic. It is converted on the host: doubles stay there.
Tensor number_tensor(const Scalar& value, const Tensor& boundaries) {
  const Tensor host = at::native::searchsorted_scalar_tensor(value, at::kCPU);
  return host.to(at::result_type(boundaries, host)).to(boundaries.device());
}

Tensor& searchsorted_scalar_out(const Tensor& boundaries, const Scalar& value, bool out_int32,
                                bool right, Side side, const std::optional<Tensor>& sorter,
                                Tensor& out) {
  return searchsorted_out(boundaries, number_tensor(value, boundaries), out_int32, right, side,
                          sorter, out);
}

Tensor searchsorted_scalar(const Tensor& boundaries, const Scalar& value, bool out_int32,
                           bool right, Side side, const std::optional<Tensor>& sorter) {
  return search(boundaries, number_tensor(value, boundaries), out_int32, right, side, sorter);
}

Tensor& bucketize_out(const Tensor& self, const Tensor& boundaries, bool out_int32, bool right,
                      Tensor& out) {
  TORCH_CHECK(boundaries.dim() == 1, "boundaries tensor must be 1 dimension, but got dim(",
              boundaries.dim(), ")");
  return searchsorted_out(boundaries, self, out_int32, right, std::nullopt, std::nullopt, out);
}

Tensor bucketize(const Tensor& self, const Tensor& boundaries, bool out_int32, bool right) {
  Tensor out = empty_webgpu({0}, out_int32 ? at::kInt : at::kLong);
  return bucketize_out(self, boundaries, out_int32, right, out);
}

Tensor bucketize_scalar(const Scalar& self, const Tensor& boundaries, bool out_int32, bool right) {
  return bucketize(number_tensor(self, boundaries), boundaries, out_int32, right);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("searchsorted.Tensor", TORCH_FN(search));
  m.impl("searchsorted.Tensor_out", TORCH_FN(searchsorted_out));
  m.impl("searchsorted.Scalar", TORCH_FN(searchsorted_scalar));
  m.impl("searchsorted.Scalar_out", TORCH_FN(searchsorted_scalar_out));
  m.impl("bucketize.Tensor", TORCH_FN(bucketize));
  m.impl("bucketize.Tensor_out", TORCH_FN(bucketize_out));
  m.impl("bucketize.Scalar", TORCH_FN(bucketize_scalar));
}

// An element is in the set if bisection of the sorted set leads to its equal.
void isin(const Tensor& elements, const Tensor& test_elements, bool invert, const Tensor& out) {
  if (test_elements.numel() == 0) {
    Tensor(out).fill_(invert);
    return;
  }
  const at::ScalarType type = at::result_type(elements, test_elements);
  const Tensor sorted =
      std::get<0>(at::sort(test_elements.reshape({-1}).to(type), /*stable=*/true, 0, false));
  const Tensor sought = elements.to(type);
  const Tensor place = search_sorted(sorted, sought).clamp_max(sorted.numel() - 1);
  const Tensor nearest = sorted.index_select(0, place.reshape({-1})).view(place.sizes());
  out.copy_(invert ? nearest.ne(sought) : nearest.eq(sought));
}

} // namespace

Tensor search_sorted(const Tensor& boundaries, const Tensor& values) {
  Tensor out = empty_webgpu(values.sizes(), at::kLong);
  if (values.numel() != 0) {
    search_rows(boundaries.contiguous(), values.contiguous(), {}, false, NanOrder::kLast, out);
  }
  return out;
}

} // namespace torch_webgpu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(isin_default_stub, &torch_webgpu::isin)
} // namespace at::native
