// grid_sampler_2d and grid_sampler_3d with gradients. grid_sample and affine_grid are composite.
#include <ATen/Context.h>
#include <ATen/native/GridSamplerUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/grid_sampler_2d.h>
#include <ATen/ops/grid_sampler_2d_backward.h>
#include <ATen/ops/grid_sampler_3d.h>
#include <ATen/ops/grid_sampler_3d_backward.h>
#include <ATen/ops/zeros_like.h>

#include "backend/fallback.h"
#include "backend/registration.h"
#include "kernels/grid_sample.h"
#include "kernels/grid_sample_backward.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "launch/spatial_params.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

// The layout of the grid with its last dimension, the coordinates, as channels.
Spatial grid_layout(const Tensor& grid) { return {grid.movedim(-1, 1), grid.dim() - 2}; }

// The parameters that both kernels share.
template <class Params>
Params make_params(const Tensor& input, const Tensor& grid, const Spatial& out, uint64_t count,
                   int64_t padding, bool align_corners) {
  const int64_t dims = input.dim() - 2;
  const Spatial in(input, dims);
  Params params;
  params.count = static_cast<uint32_t>(count);
  params.channels = in.channels();
  params.padding = static_cast<uint32_t>(padding);
  params.align_corners = align_corners ? 1 : 0;
  params.dims = static_cast<uint32_t>(dims);
  params.in_size = sizes_of(in);
  params.out_size = sizes_of(out);
  set_strides(in, params.in_step, params.in_batch);
  set_strides(grid_layout(grid), params.grid_step, params.grid_batch);
  set_strides(out, params.out_step, params.out_batch);
  return params;
}

// From at::native::detail::GridSamplerInterpolation.
template <class Interpolation>
Interpolation interpolation_of(int64_t mode) {
  constexpr Interpolation modes[] = {Interpolation::linear, Interpolation::nearest,
                                     Interpolation::cubic};
  return modes[mode];
}

Tensor sample(const char* op, const Tensor& input, const Tensor& grid, int64_t mode,
              int64_t padding, bool align_corners) {
  check_dtype(grid, input.scalar_type());
  const int64_t dims = input.dim() - 2;
  auto size = input.sizes().vec();
  std::copy_n(grid.sizes().begin() + 1, dims, size.begin() + 2);
  Tensor result = at::empty(size, input.options());
  if (result.numel() == 0) {
    return result;
  }
  const Spatial out(result, dims);
  TORCH_CHECK_NOT_IMPLEMENTED(out.numel() < uint64_t{1} << 31, op, "(): more than 2^31 elements");
  namespace kernel = kernels::grid_sample;
  const auto params =
      make_params<kernel::Params>(input, grid, out, out.numel(), padding, align_corners);
  kernel::Launch launch(op);
  launch.out(result).in(input).grid(grid);
  launch.interpolation(interpolation_of<kernel::Interpolation>(mode));
  launch.run(params, launch.grid_of(params.count));
  return result;
}

std::tuple<Tensor, Tensor> sample_backward(const char* op, const Tensor& grad_output,
                                           const Tensor& input, const Tensor& grid, int64_t mode,
                                           int64_t padding, bool align_corners,
                                           std::array<bool, 2> output_mask) {
  check_dtype(grid, input.scalar_type());
  check_dtype(grad_output, input.scalar_type());
  if (output_mask[0]) {
    at::globalContext().alertNotDeterministic(op);
  }
  // Many points are added to one cell, so the sums are kept in float32 and rounded once.
  const auto contiguous = at::MemoryFormat::Contiguous;
  Tensor grad_input;
  if (output_mask[0]) {
    grad_input = at::zeros_like(input, input.options().dtype(at::kFloat), contiguous);
  }
  Tensor grad_grid = at::empty_like(grid, contiguous);
  const int64_t dims = input.dim() - 2;
  const Spatial out(grad_output, dims);
  const uint64_t points = out.channels() == 0 ? 0 : out.numel() / out.channels();
  if (points == 0) {
    grad_grid.zero_();
  } else {
    namespace kernel = kernels::grid_sample_backward;
    auto params = make_params<kernel::Params>(input, grid, out, points, padding, align_corners);
    set_strides(grid_layout(grad_grid), params.grad_grid_step, params.grad_grid_batch);
    kernel::Launch launch(op);
    launch.out(grad_output).in(input).grid(grid).grad_grid(grad_grid);
    if (output_mask[0]) {
      launch.grad_in(grad_input);
      set_strides(Spatial(grad_input, dims), params.grad_in_step, params.grad_in_batch);
    }
    launch.interpolation(interpolation_of<kernel::Interpolation>(mode));
    launch.run(params, launch.grid_of(points));
  }
  return {output_mask[0] ? grad_input.to(input.scalar_type()) : Tensor(), grad_grid};
}

Tensor grid_sampler_2d(const Tensor& input, const Tensor& grid, int64_t mode, int64_t padding,
                       bool align_corners) {
  check_same_device("grid_sampler_2d", {{input, "input"}, {grid, "grid"}});
  at::native::check_grid_sampler_common(input, grid);
  at::native::check_grid_sampler_2d(input, grid);
  if (!is_native_float(input)) {
    return call_cpu_fallback<at::_ops::grid_sampler_2d>::call(input, grid, mode, padding,
                                                              align_corners);
  }
  return sample("grid_sampler_2d", input, grid, mode, padding, align_corners);
}

Tensor grid_sampler_3d(const Tensor& input, const Tensor& grid, int64_t mode, int64_t padding,
                       bool align_corners) {
  check_same_device("grid_sampler_3d", {{input, "input"}, {grid, "grid"}});
  at::native::check_grid_sampler_common(input, grid);
  at::native::check_grid_sampler_3d(input, grid, mode);
  if (!is_native_float(input)) {
    return call_cpu_fallback<at::_ops::grid_sampler_3d>::call(input, grid, mode, padding,
                                                              align_corners);
  }
  return sample("grid_sampler_3d", input, grid, mode, padding, align_corners);
}

std::tuple<Tensor, Tensor> grid_sampler_2d_backward(const Tensor& grad_output, const Tensor& input,
                                                    const Tensor& grid, int64_t mode,
                                                    int64_t padding, bool align_corners,
                                                    std::array<bool, 2> output_mask) {
  check_same_device("grid_sampler_2d_backward",
                    {{grad_output, "grad_output"}, {input, "input"}, {grid, "grid"}});
  at::native::check_grid_sampler_common(input, grid);
  at::native::check_grid_sampler_2d(input, grid);
  if (!is_native_float(input)) {
    return call_cpu_fallback<at::_ops::grid_sampler_2d_backward>::call(
        grad_output, input, grid, mode, padding, align_corners, output_mask);
  }
  return sample_backward("grid_sampler_2d_backward", grad_output, input, grid, mode, padding,
                         align_corners, output_mask);
}

std::tuple<Tensor, Tensor> grid_sampler_3d_backward(const Tensor& grad_output, const Tensor& input,
                                                    const Tensor& grid, int64_t mode,
                                                    int64_t padding, bool align_corners,
                                                    std::array<bool, 2> output_mask) {
  check_same_device("grid_sampler_3d_backward",
                    {{grad_output, "grad_output"}, {input, "input"}, {grid, "grid"}});
  at::native::check_grid_sampler_common(input, grid);
  at::native::check_grid_sampler_3d(input, grid, mode);
  if (!is_native_float(input)) {
    return call_cpu_fallback<at::_ops::grid_sampler_3d_backward>::call(
        grad_output, input, grid, mode, padding, align_corners, output_mask);
  }
  return sample_backward("grid_sampler_3d_backward", grad_output, input, grid, mode, padding,
                         align_corners, output_mask);
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("grid_sampler_2d", TORCH_FN(grid_sampler_2d));
  m.impl("grid_sampler_2d_backward", TORCH_FN(grid_sampler_2d_backward));
  m.impl("grid_sampler_3d", TORCH_FN(grid_sampler_3d));
  m.impl("grid_sampler_3d_backward", TORCH_FN(grid_sampler_3d_backward));
}

} // namespace
} // namespace torch_webgpu
