// searchsorted, bucketize and isin.
#include <ATen/native/BucketizationUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorCompare.h>
#include <ATen/ops/isin.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>

#include <string>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/registration.h"
#include "kernels/sort_search.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "ops/sort/sort_launch.h"

namespace torch_webgpu {
namespace {

using at::Scalar;
using at::Tensor;
using Side = std::optional<std::string_view>;

// All tensors contiguous, values and boundaries of one native dtype; `sorter` may be undefined.
// `nan_is_last`: NaN compares as in sorting, greater than all and equal to another NaN. Otherwise
// as on the CPU and CUDA: every boundary is left of a NaN value, and a NaN boundary of every value.
void search_rows(const Tensor& boundaries, const Tensor& values, const Tensor& sorter, bool right,
                 bool nan_is_last, const Tensor& out) {
  TORCH_CHECK_NOT_IMPLEMENTED(values.numel() < int64_t{1} << 31 && boundaries.numel() < int64_t{1}
                                                                                            << 31,
                              "searchsorted(): more than 2^31 elements");
  namespace kernel = kernels::sort_search;
  kernel::Params params;
  params.count = static_cast<uint32_t>(values.numel());
  params.values_row = values.dim() == 0 ? 1 : static_cast<uint32_t>(values.size(-1));
  params.boundaries_row = static_cast<uint32_t>(boundaries.size(-1));
  params.shared_row = boundaries.dim() == 1 ? 1 : 0;
  params.right = right ? 1 : 0;
  kernel::Launch launch("searchsorted");
  launch.out(out).values(values).boundaries(boundaries).nan_is_last(nan_is_last);
  if (sorter.defined()) {
    launch.sorter(sorter);
  }
  launch.run(params, launch.grid_of(params.count));
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
    note_fallback("aten::searchsorted", type);
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
  search_rows(rows, sought, sorter, is_right, /*nan_is_last=*/false, written);
  if (!written.is_same(out)) {
    out.copy_(written);
  }
  return out;
}

Tensor search(const Tensor& boundaries, const Tensor& values, bool out_int32, bool right, Side side,
              const std::optional<Tensor>& sorter) {
  Tensor out = empty_webgpu({0}, out_int32 ? at::kInt : at::kLong, boundaries.device());
  return searchsorted_out(boundaries, values, out_int32, right, side, sorter, out);
}

// A number promotes as in arithmetic. It is converted on the host, because the device has no
// float64.
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
  Tensor out = empty_webgpu({0}, out_int32 ? at::kInt : at::kLong, boundaries.device());
  return bucketize_out(self, boundaries, out_int32, right, out);
}

Tensor bucketize_scalar(const Scalar& self, const Tensor& boundaries, bool out_int32, bool right) {
  return bucketize(number_tensor(self, boundaries), boundaries, out_int32, right);
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("searchsorted.Tensor", TORCH_FN(search));
  m.impl("searchsorted.Tensor_out", TORCH_FN(searchsorted_out));
  m.impl("searchsorted.Scalar", TORCH_FN(searchsorted_scalar));
  m.impl("searchsorted.Scalar_out", TORCH_FN(searchsorted_scalar_out));
  m.impl("bucketize.Tensor", TORCH_FN(bucketize));
  m.impl("bucketize.Tensor_out", TORCH_FN(bucketize_out));
  m.impl("bucketize.Scalar", TORCH_FN(bucketize_scalar));
}

// An element is in the set if bisection of the sorted set finds an equal element.
void isin(const Tensor& elements, const Tensor& test_elements, bool invert, const Tensor& out) {
  if (test_elements.numel() == 0) {
    Tensor(out).fill_(invert);
    return;
  }
  const at::ScalarType type = at::result_type(elements, test_elements);
  if (!native_dtype(type)) {
    note_fallback("aten::isin", type);
    out.copy_(at::isin(elements.cpu().to(type), test_elements.cpu().to(type),
                       /*assume_unique=*/false, invert));
    return;
  }
  const Tensor sorted =
      std::get<0>(at::sort(test_elements.reshape({-1}).to(type), /*stable=*/true, 0, false));
  const Tensor sought = elements.to(type);
  const Tensor place = search_sorted(sorted, sought).clamp_max(sorted.numel() - 1);
  const Tensor nearest = sorted.index_select(0, place.reshape({-1})).view(place.sizes());
  out.copy_(invert ? nearest.ne(sought) : nearest.eq(sought));
}

} // namespace

Tensor search_sorted(const Tensor& boundaries, const Tensor& values) {
  Tensor out = empty_webgpu(values.sizes(), at::kLong, values.device());
  if (values.numel() != 0) {
    search_rows(boundaries.contiguous(), values.contiguous(), {}, false, /*nan_is_last=*/true, out);
  }
  return out;
}

} // namespace torch_webgpu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(isin_default_stub, &torch_webgpu::isin)
} // namespace at::native
