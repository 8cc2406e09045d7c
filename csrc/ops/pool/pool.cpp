#include "ops/pool/pool.h"

#include "kernels/pool_average.h"
#include "kernels/pool_average_backward.h"
#include "kernels/pool_max.h"
#include "kernels/pool_max_backward.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "launch/spatial_params.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

std::array<uint32_t, 4> vec4(const std::array<int64_t, 3>& values) {
  return {static_cast<uint32_t>(values[0]), static_cast<uint32_t>(values[1]),
          static_cast<uint32_t>(values[2]), 0};
}

// The kernels have the same parameters. `walked` is the tensor that the kernel writes, one
// invocation per element.
template <class Params>
Params make_params(const Pooling& pooling, const Spatial& in, const Spatial& out,
                   const Spatial& walked) {
  TORCH_CHECK_NOT_IMPLEMENTED(walked.numel() < uint64_t{1} << 31, pooling.op,
                              "(): more than 2^31 elements");
  for (int64_t d = 0; d < 3; ++d) {
    TORCH_CHECK_NOT_IMPLEMENTED(pooling.windows == Windows::kFixed ||
                                    (in.size(d) + 1) * (out.size(d) + 1) < int64_t{1} << 32,
                                pooling.op, "(): input and output sizes are too large");
  }
  Params params;
  params.count = static_cast<uint32_t>(walked.numel());
  params.channels = walked.channels();
  params.channels_last = walked.channels_last() ? 1 : 0;
  params.divisor = static_cast<uint32_t>(pooling.divisor_override);
  params.count_include_pad = pooling.count_include_pad ? 1 : 0;
  params.dims = static_cast<uint32_t>(pooling.dims);
  params.in_size = sizes_of(in);
  params.out_size = sizes_of(out);
  params.kernel = vec4(pooling.kernel);
  params.stride = vec4(pooling.stride);
  params.padding = vec4(pooling.padding);
  params.dilation = vec4(pooling.dilation);
  set_strides(in, params.in_step, params.in_batch);
  set_strides(out, params.out_step, params.out_batch);
  return params;
}

// As the constant of a kernel.
template <class KernelWindows>
KernelWindows windows_of(const Pooling& pooling) {
  switch (pooling.windows) {
  case Windows::kAdaptive:
    return KernelWindows::adaptive;
  case Windows::kFractional:
    if constexpr (requires { KernelWindows::fractional; }) {
      return KernelWindows::fractional;
    }
    TORCH_INTERNAL_ASSERT(false, pooling.op, "(): no fractional windows");
  default:
    return KernelWindows::fixed;
  }
}

} // namespace

bool can_pool_max(at::ScalarType type) {
  const auto dtype = native_dtype(type);
  return dtype && type != at::kBool && info(*dtype).kind != Kind::kComplex;
}

bool can_pool_average(at::ScalarType type) { return type == at::kLong || is_native_float(type); }

void pool_max(const Pooling& pooling, const Tensor& in, const Tensor& out, const Tensor& indices,
              const Tensor& samples) {
  if (out.numel() == 0) {
    return;
  }
  namespace kernel = kernels::pool_max;
  const Spatial walked(out, pooling.dims);
  auto params = make_params<kernel::Params>(pooling, Spatial(in, pooling.dims), walked, walked);
  set_strides(Spatial(indices, pooling.dims), params.index_step, params.index_batch);
  kernel::Launch launch(pooling.op);
  launch.out(out).index(indices).in(in).windows(windows_of<kernel::Windows>(pooling));
  if (samples.defined()) {
    launch.samples(samples);
    set_strides(Spatial(samples, 1), params.samples_step, params.samples_batch);
  }
  launch.run(params, launch.grid_of(params.count));
}

void pool_max_backward(const Pooling& pooling, const Tensor& grad_out, const Tensor& indices,
                       const Tensor& grad_in) {
  if (grad_in.numel() == 0) {
    return;
  }
  TORCH_CHECK(indices.sizes() == grad_out.sizes(), pooling.op, "(): indices of size ",
              indices.sizes(), " do not belong to a gradient of size ", grad_out.sizes());
  check_dtype(grad_out, grad_in.scalar_type());
  namespace kernel = kernels::pool_max_backward;
  const Spatial walked(grad_in, pooling.dims);
  auto params =
      make_params<kernel::Params>(pooling, walked, Spatial(grad_out, pooling.dims), walked);
  set_strides(Spatial(indices, pooling.dims), params.index_step, params.index_batch);
  kernel::Launch launch(pooling.op);
  launch.in(grad_in).out(grad_out).index(indices).windows(windows_of<kernel::Windows>(pooling));
  launch.run(params, launch.grid_of(params.count));
}

void pool_average(const Pooling& pooling, const Tensor& in, const Tensor& out) {
  if (out.numel() == 0) {
    return;
  }
  namespace kernel = kernels::pool_average;
  const Spatial walked(out, pooling.dims);
  const auto params =
      make_params<kernel::Params>(pooling, Spatial(in, pooling.dims), walked, walked);
  kernel::Launch launch(pooling.op);
  launch.out(out).in(in).windows(windows_of<kernel::Windows>(pooling));
  launch.run(params, launch.grid_of(params.count));
}

void pool_average_backward(const Pooling& pooling, const Tensor& grad_out, const Tensor& grad_in) {
  if (grad_in.numel() == 0) {
    return;
  }
  check_dtype(grad_out, grad_in.scalar_type());
  namespace kernel = kernels::pool_average_backward;
  const Spatial walked(grad_in, pooling.dims);
  const auto params =
      make_params<kernel::Params>(pooling, walked, Spatial(grad_out, pooling.dims), walked);
  kernel::Launch launch(pooling.op);
  launch.in(grad_in).out(grad_out).windows(windows_of<kernel::Windows>(pooling));
  launch.run(params, launch.grid_of(params.count));
}

} // namespace torch_webgpu
