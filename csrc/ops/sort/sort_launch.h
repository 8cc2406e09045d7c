// Sorting rows on the device: csrc/kernels/sort_block.wgsl and sort_merge.wgsl.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "wgsl/dtype.h"

namespace torch_webgpu {

/// The first `k` elements of every row of `in` in sorted order, with their positions (int64). Rows
/// lie along the last dimension; all three tensors are contiguous, and no two share memory. Stable;
/// NaN counts as the greatest value. `in` must have a native, real dtype.
void sort_rows(const char* name, const at::Tensor& in, int64_t k, bool descending,
               const at::Tensor& values, const at::Tensor& indices);

/// WGSL: `key_t`, `last_key`, `key_less` and `key_of`, which map values of that type to keys whose
/// order is that of sorting.
std::string sort_key_hook(DType dtype);

/// Where each of `values` belongs in `boundaries`, one sorted row or as many as `values` has, in
/// the order of sort_rows: NaN equals NaN and is the greatest. int64; both have one native, real
/// dtype.
at::Tensor search_sorted(const at::Tensor& boundaries, const at::Tensor& values);

} // namespace torch_webgpu
