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
#include <torch/library.h>

#include "backend/fallback.h"
#include "launch/dtypes.h"
#include "launch/kernel_call.h"
#include "launch/spatial.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

constexpr PipelineFamily kForward = PipelineFamily::kGridSample;
constexpr PipelineFamily kBackward = PipelineFamily::kGridSampleBackward;

// Mirrors GridParams of lib/grid_sample.wgsl.
struct Params {
  uint32_t count;
  uint32_t channels;
  uint32_t padding;
  uint32_t align_corners;
  Triple in_size; // extra: dims
  Triple out_size;
  SpatialLayout in;
  SpatialLayout grid;
  SpatialLayout out;
  SpatialLayout grad_in;
  SpatialLayout grad_grid;
};

// The coordinates, which are last in memory, where channels are.
Spatial grid_layout(const Tensor& grid) { return {grid.movedim(-1, 1), grid.dim() - 2}; }

Params make_params(const Tensor& input, const Tensor& grid, const Spatial& out, int64_t padding,
                   bool align_corners) {
  const int64_t dims = input.dim() - 2;
  const Spatial in(input, dims);
  Params params;
  params.channels = in.channels();
  params.padding = static_cast<uint32_t>(padding);
  params.align_corners = align_corners ? 1 : 0;
  params.in_size = in.sizes(static_cast<uint32_t>(dims));
  params.out_size = out.sizes();
  params.in = in.layout();
  params.grid = grid_layout(grid).layout();
  params.out = out.layout();
  return params;
}

std::pair<std::string_view, std::string> interpolation_hook(int64_t mode) {
  constexpr const char* names[] = {"grid_linear", "grid_nearest", "grid_cubic"};
  return {"interpolation",
          std::string("fn axis_of(coordinate: f32, size: u32) -> GridAxis { return ") +
              names[mode] + "(coordinate, size, p.padding, p.align_corners != 0u); }"};
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
  Params params = make_params(input, grid, out, padding, align_corners);
  params.count = static_cast<uint32_t>(out.numel());
  const DType dtype = *native_dtype(input.scalar_type());
  KernelCall call(op, "grid_sample");
  call.add_output("out", result, dtype);
  call.add_input("in", input, dtype);
  call.add_input("grid", grid, dtype);
  call.run({kForward, static_cast<uint64_t>(mode), 0}, params, params.count,
           [&] { return KernelCall::Hooks{interpolation_hook(mode)}; });
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
  // Sums of many points: in float32, rounded once.
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
    Params params = make_params(input, grid, out, padding, align_corners);
    params.count = static_cast<uint32_t>(points);
    params.grad_grid = grid_layout(grad_grid).layout();
    const DType dtype = *native_dtype(input.scalar_type());
    KernelCall call(op, "grid_sample_backward");
    if (output_mask[0]) {
      params.grad_in = Spatial(grad_input, dims).layout();
      call.add_sum("grad_in", grad_input, DType::kF32);
    }
    call.add_output("grad_grid", grad_grid, dtype);
    call.add_input("out", grad_output, dtype);
    call.add_input("in", input, dtype);
    call.add_input("grid", grid, dtype);
    const uint64_t variant = static_cast<uint64_t>(mode) | (output_mask[0] ? 4u : 0u);
    call.run({kBackward, variant, 0}, params, points, [&] {
      KernelCall::Hooks hooks = {interpolation_hook(mode)};
      if (!output_mask[0]) {
        hooks.emplace_back("spread", "fn spread(i: u32, v: f32) {}");
      }
      return hooks;
    });
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

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("grid_sampler_2d", TORCH_FN(grid_sampler_2d));
  m.impl("grid_sampler_2d_backward", TORCH_FN(grid_sampler_2d_backward));
  m.impl("grid_sampler_3d", TORCH_FN(grid_sampler_3d));
  m.impl("grid_sampler_3d_backward", TORCH_FN(grid_sampler_3d_backward));
}

} // namespace
} // namespace torch_webgpu
