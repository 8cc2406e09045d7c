// The pooling kernels: maximum and average over fixed, adaptive or random windows.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace torch_webgpu {

enum class Windows : uint8_t { kFixed, kAdaptive, kFractional };

/// The windows of a pooling op. The arrays are depth, row, column; fewer spatial dimensions use the
/// last ones.
struct Pooling {
  const char* op; // for errors and profiles
  int64_t dims;
  Windows windows = Windows::kFixed;
  std::array<int64_t, 3> kernel = {1, 1, 1};
  std::array<int64_t, 3> stride = {1, 1, 1};
  std::array<int64_t, 3> padding = {0, 0, 0};
  std::array<int64_t, 3> dilation = {1, 1, 1};
  bool count_include_pad = false;
  int64_t divisor_override = 0;

  /// Sets the entries from an op's argument: one number for all dimensions or one each.
  void set(std::array<int64_t, 3>& entries, at::IntArrayRef values) const {
    TORCH_CHECK(values.size() == 1 || static_cast<int64_t>(values.size()) == dims, op,
                ": expected a single int or ", dims, " ints, but got ", values);
    for (int64_t d = 0; d < dims; ++d) {
      entries[3 - dims + d] = values.size() == 1 ? values[0] : values[d];
    }
  }
  /// The arguments that most pooling ops have. An empty stride is the kernel's size.
  void set_windows(at::IntArrayRef kernel_size, at::IntArrayRef strides, at::IntArrayRef paddings) {
    set(kernel, kernel_size);
    set(stride, strides.empty() ? kernel_size : strides);
    set(padding, paddings);
  }
};

/// Whether the kernels can compute in the type: else the counted fallback.
bool can_pool_max(at::ScalarType type);
bool can_pool_average(at::ScalarType type);

/// `samples` places the windows of fractional pooling; undefined otherwise.
void pool_max(const Pooling& pooling, const at::Tensor& in, const at::Tensor& out,
              const at::Tensor& indices, const at::Tensor& samples = {});
void pool_max_backward(const Pooling& pooling, const at::Tensor& grad_out,
                       const at::Tensor& indices, const at::Tensor& grad_in);
void pool_average(const Pooling& pooling, const at::Tensor& in, const at::Tensor& out);
void pool_average_backward(const Pooling& pooling, const at::Tensor& grad_out,
                           const at::Tensor& grad_in);

} // namespace torch_webgpu
