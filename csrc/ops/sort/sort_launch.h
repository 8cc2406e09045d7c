// Sorting rows and searching them on the device.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_webgpu {

/// The first `k` elements of every row of `in` in sorted order, with their positions (int64). Rows
/// lie along the last dimension; all three tensors are contiguous, and no two share memory. Stable;
/// NaN counts as the greatest value. `in` must have a native, real dtype.
void sort_rows(const char* name, const at::Tensor& in, int64_t k, bool descending,
               const at::Tensor& values, const at::Tensor& indices);

/// Where each of `values` belongs in `boundaries`, one sorted row or as many as `values` has, in
/// the order of sort_rows: NaN equals NaN and is the greatest. int64; both have one native, real
/// dtype.
at::Tensor search_sorted(const at::Tensor& boundaries, const at::Tensor& values);

} // namespace torch_webgpu
