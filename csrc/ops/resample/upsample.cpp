// Resampling to another size: upsample_* of every mode, with gradients.
#include <ATen/native/UpSample.h>
#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/_upsample_bicubic2d_aa_backward.h>
#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/_upsample_bilinear2d_aa_backward.h>
#include <ATen/ops/_upsample_nearest_exact1d.h>
#include <ATen/ops/_upsample_nearest_exact1d_backward.h>
#include <ATen/ops/_upsample_nearest_exact2d.h>
#include <ATen/ops/_upsample_nearest_exact2d_backward.h>
#include <ATen/ops/_upsample_nearest_exact3d.h>
#include <ATen/ops/_upsample_nearest_exact3d_backward.h>
#include <ATen/ops/upsample_bicubic2d.h>
#include <ATen/ops/upsample_bicubic2d_backward.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_bilinear2d_backward.h>
#include <ATen/ops/upsample_linear1d.h>
#include <ATen/ops/upsample_linear1d_backward.h>
#include <ATen/ops/upsample_nearest1d.h>
#include <ATen/ops/upsample_nearest1d_backward.h>
#include <ATen/ops/upsample_nearest2d.h>
#include <ATen/ops/upsample_nearest2d_backward.h>
#include <ATen/ops/upsample_nearest3d.h>
#include <ATen/ops/upsample_nearest3d_backward.h>
#include <ATen/ops/upsample_trilinear3d.h>
#include <ATen/ops/upsample_trilinear3d_backward.h>

#include "backend/fallback.h"
#include "kernels/upsample.h"
#include "kernels/upsample_backward.h"
#include "launch/dtypes.h"
#include "launch/spatial_params.h"
#include "structured_ops.h"

namespace torch_webgpu {
namespace {

using at::IntArrayRef;
using at::Tensor;
using Scale = std::optional<double>;

using Filter = kernels::upsample::Method;

// The radius of the filter, in cells.
float radius_of(Filter filter) {
  return filter == Filter::cubic || filter == Filter::cubic_aa ? 2 : 1;
}

struct Resampling {
  const char* op;
  Filter filter;
  int64_t dims;
  bool align_corners = false;
  std::array<Scale, 3> scales = {}; // depth, row, column

  /// The arguments in which the ops differ: some have align_corners, then a scale per dimension.
  template <class... Scales>
  void set(bool align, Scales... rest) {
    align_corners = align;
    set(Scale(rest)...);
  }
  template <class... Scales>
  void set(Scale first, Scales... rest) {
    const std::array<Scale, 1 + sizeof...(Scales)> given = {first, rest...};
    std::copy(given.begin(), given.end(), scales.end() - given.size());
  }
};

// Bytes have kernels only for filters that copy elements. With the other filters, the CPU rounds
// intermediate results in its own way.
bool copies_bytes(Filter filter, at::ScalarType type) {
  return type == at::kByte && (filter == Filter::nearest || filter == Filter::nearest_exact);
}

// Input cells per output cell.
float cell_ratio(const Resampling& resampling, int64_t in, int64_t out, Scale scale) {
  const Filter filter = resampling.filter;
  // In two dimensions, an equal or doubled size has the exact ratio, whatever the scale argument
  // is. The CPU does so for images of up to 128 rows and columns together, and CUDA for equal sizes
  // only. In one and three dimensions both use the scale.
  if (filter == Filter::nearest && resampling.dims == 2 && (out == in || out == 2 * in)) {
    return out == in ? 1.0f : 0.5f;
  }
  if (filter == Filter::linear && out == in) {
    return 1.0f;
  }
  return at::native::area_pixel_compute_scale<float>(in, out, resampling.align_corners, scale);
}

// The parameters that both kernels share. `walked` is the tensor that the kernel writes, one
// invocation per cell.
template <class Params>
Params make_params(const Resampling& resampling, const Spatial& in, const Spatial& out,
                   const Spatial& walked) {
  TORCH_CHECK_NOT_IMPLEMENTED(walked.numel() < uint64_t{1} << 31, resampling.op,
                              "(): more than 2^31 elements");
  Params params;
  params.count = static_cast<uint32_t>(walked.numel());
  params.channels = walked.channels();
  params.channels_last = walked.channels_last() ? 1 : 0;
  params.align_corners = resampling.align_corners ? 1 : 0;
  params.radius = radius_of(resampling.filter);
  params.in_size = sizes_of(in);
  params.out_size = sizes_of(out);
  for (int64_t d = 0; d < 3; ++d) {
    params.scale[d] = cell_ratio(resampling, in.size(d), out.size(d), resampling.scales[d]);
  }
  set_strides(in, params.in_step, params.in_batch);
  set_strides(out, params.out_step, params.out_batch);
  return params;
}

void resample(const Resampling& resampling, const Tensor& self, const Tensor& result) {
  if (result.numel() == 0) {
    return;
  }
  namespace kernel = kernels::upsample;
  const Spatial out(result, resampling.dims);
  const auto params =
      make_params<kernel::Params>(resampling, Spatial(self, resampling.dims), out, out);
  kernel::Launch launch(resampling.op);
  launch.out(result).in(self).method(resampling.filter);
  launch.run(params, launch.grid_of(params.count));
}

void resample_backward(const Resampling& resampling, const Tensor& grad_output,
                       const Tensor& grad_input) {
  if (grad_input.numel() == 0) {
    return;
  }
  namespace kernel = kernels::upsample_backward;
  const Spatial in(grad_input, resampling.dims);
  const auto params =
      make_params<kernel::Params>(resampling, in, Spatial(grad_output, resampling.dims), in);
  kernel::Launch launch(resampling.op);
  launch.in(grad_input).out(grad_output);
  launch.method(static_cast<kernel::Method>(resampling.filter)); // the same list in both files
  launch.run(params, launch.grid_of(params.count));
}

template <class Op, class... Arguments>
void forward(Resampling resampling, const Tensor& self, IntArrayRef output_size, const Tensor& out,
             Arguments... arguments) {
  if (!is_native_float(self.scalar_type()) &&
      !copies_bytes(resampling.filter, self.scalar_type())) {
    call_cpu_fallback_symint<Op>::call(self, c10::fromIntArrayRefSlow(output_size), arguments...,
                                       const_cast<Tensor&>(out));
    return;
  }
  resampling.set(arguments...);
  resample(resampling, self, out);
}

template <class Op, class... Arguments>
void backward(Resampling resampling, const Tensor& grad_output, IntArrayRef output_size,
              IntArrayRef input_size, const Tensor& grad_input, Arguments... arguments) {
  if (!is_native_float(grad_output.scalar_type())) {
    call_cpu_fallback_symint<Op>::call(grad_output, c10::fromIntArrayRefSlow(output_size),
                                       c10::fromIntArrayRefSlow(input_size), arguments...,
                                       const_cast<Tensor&>(grad_input));
    return;
  }
  resampling.set(arguments...);
  resample_backward(resampling, grad_output, grad_input);
}

} // namespace

// An op and its gradient: the filter, the number of dimensions, the parameters in which they
// differ.
#define TW_LIST(...) __VA_ARGS__
#define TW_UPSAMPLE(op, filter, dims, parameters, arguments)                                       \
  void structured_##op##_out::impl(const Tensor& self, IntArrayRef output_size,                    \
                                   TW_LIST parameters, const Tensor& out) {                        \
    forward<at::_ops::op##_out>({#op, Filter::filter, dims}, self, output_size, out,               \
                                TW_LIST arguments);                                                \
  }                                                                                                \
  void structured_##op##_backward_out::impl(const Tensor& grad_output, IntArrayRef output_size,    \
                                            IntArrayRef input_size, TW_LIST parameters,            \
                                            const Tensor& grad_input) {                            \
    backward<at::_ops::op##_backward_grad_input>({#op "_backward", Filter::filter, dims},          \
                                                 grad_output, output_size, input_size, grad_input, \
                                                 TW_LIST arguments);                               \
  }

TW_UPSAMPLE(upsample_nearest1d, nearest, 1, (Scale w), (w))
TW_UPSAMPLE(upsample_nearest2d, nearest, 2, (Scale h, Scale w), (h, w))
TW_UPSAMPLE(upsample_nearest3d, nearest, 3, (Scale d, Scale h, Scale w), (d, h, w))
TW_UPSAMPLE(_upsample_nearest_exact1d, nearest_exact, 1, (Scale w), (w))
TW_UPSAMPLE(_upsample_nearest_exact2d, nearest_exact, 2, (Scale h, Scale w), (h, w))
TW_UPSAMPLE(_upsample_nearest_exact3d, nearest_exact, 3, (Scale d, Scale h, Scale w), (d, h, w))
TW_UPSAMPLE(upsample_linear1d, linear, 1, (bool align, Scale w), (align, w))
TW_UPSAMPLE(upsample_bilinear2d, linear, 2, (bool align, Scale h, Scale w), (align, h, w))
TW_UPSAMPLE(upsample_trilinear3d, linear, 3, (bool align, Scale d, Scale h, Scale w),
            (align, d, h, w))
TW_UPSAMPLE(upsample_bicubic2d, cubic, 2, (bool align, Scale h, Scale w), (align, h, w))
TW_UPSAMPLE(_upsample_bilinear2d_aa, linear_aa, 2, (bool align, Scale h, Scale w), (align, h, w))
TW_UPSAMPLE(_upsample_bicubic2d_aa, cubic_aa, 2, (bool align, Scale h, Scale w), (align, h, w))

#undef TW_UPSAMPLE
#undef TW_LIST

} // namespace torch_webgpu
