#include "ops/pool/pool.h"

#include "launch/dtypes.h"
#include "launch/kernel_call.h"
#include "launch/spatial.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

constexpr PipelineFamily kMax = PipelineFamily::kPoolMax;
constexpr PipelineFamily kAverage = PipelineFamily::kPoolAverage;
constexpr PipelineFamily kMaxBackward = PipelineFamily::kPoolMaxBackward;
constexpr PipelineFamily kAverageBackward = PipelineFamily::kPoolAverageBackward;

// Mirrors PoolParams of lib/pool.wgsl.
struct Params {
  uint32_t count = 0;
  uint32_t channels = 0;
  uint32_t channels_last = 0;
  uint32_t divisor = 0;
  Triple in_size; // extra: count_include_pad
  Triple out_size;
  Triple kernel;
  Triple stride;
  Triple padding;
  Triple dilation;
  SpatialLayout out;
  SpatialLayout in;
  SpatialLayout index;
  SpatialLayout samples;
};

Triple triple(const std::array<int64_t, 3>& values) {
  return {static_cast<uint32_t>(values[0]), static_cast<uint32_t>(values[1]),
          static_cast<uint32_t>(values[2])};
}

// `walked` is the tensor that the kernel writes, one invocation per element.
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
  params.in_size = in.sizes(pooling.count_include_pad ? 1 : 0);
  params.out_size = out.sizes();
  params.kernel = triple(pooling.kernel);
  params.stride = triple(pooling.stride);
  params.padding = triple(pooling.padding);
  params.dilation = triple(pooling.dilation);
  params.in = in.layout();
  params.out = out.layout();
  return params;
}

void add_window_hooks(const Pooling& pooling, KernelCall::Hooks& hooks, bool window, bool cover) {
  const char* window_text = "adaptive_window(cell.at[d], p.in_size[d], p.out_size[d])";
  const char* cover_text = "adaptive_cover(cell.at[d], p.in_size[d], p.out_size[d])";
  if (pooling.windows == Windows::kFixed) {
    return; // the files' own hooks
  }
  if (pooling.windows == Windows::kFractional) {
    // Two samples are for columns and rows, three for depth, rows and columns.
    window_text = pooling.dims == 2
                      ? "fractional_window(cell.at[d], p.in_size[d], p.out_size[d], p.kernel[d], "
                        "load_samples(plane_of(p.samples, cell) + (2u - max(d, 1u)) * "
                        "p.samples.step.z))"
                      : "fractional_window(cell.at[d], p.in_size[d], p.out_size[d], p.kernel[d], "
                        "load_samples(plane_of(p.samples, cell) + d * p.samples.step.z))";
    cover_text = "fractional_cover(cell.at[d], p.in_size[d], p.out_size[d], p.kernel[d])";
  }
  if (window) {
    hooks.emplace_back("window", std::string("fn window(cell: Cell, d: u32) -> Window { return ") +
                                     window_text + "; }");
  }
  if (cover) {
    hooks.emplace_back("cover", std::string("fn cover(cell: Cell, d: u32) -> vec2<u32> { return ") +
                                    cover_text + "; }");
  }
}

std::string maximum_hook(DType dtype) {
  std::string lowest = "-2147483647 - 1";
  std::string replaces = "value > best";
  if (dtype == DType::kI64) {
    lowest = "vec2<u32>(0u, 0x80000000u)";
    replaces = "gt_l(value, best)";
  } else if (info(dtype).kind == Kind::kFloat) {
    lowest = "-inf_f()";
    replaces += " || is_nan_f(value)";
  }
  return "fn lowest() -> in_t { return " + lowest +
         "; }\n"
         "fn replaces(value: in_t, best: in_t) -> bool { return " +
         replaces + "; }";
}

PipelineKey variant(PipelineFamily family, const Pooling& pooling) {
  // Fractional windows take their samples in an order that depends on the rank.
  return {family, static_cast<uint64_t>(pooling.windows) | static_cast<uint64_t>(pooling.dims) << 8,
          0};
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
  const DType dtype = *native_dtype(in.scalar_type());
  KernelCall call(pooling.op, "pool_max");
  call.add_output("out", out, dtype);
  call.add_output("index", indices, DType::kI64);
  call.add_input("in", in, dtype);
  const Spatial walked(out, pooling.dims);
  Params params = make_params(pooling, Spatial(in, pooling.dims), walked, walked);
  params.index = Spatial(indices, pooling.dims).layout();
  if (samples.defined()) {
    call.add_input("samples", samples, *native_dtype(samples.scalar_type()));
    params.samples = Spatial(samples, 1).layout();
  }
  call.run(variant(kMax, pooling), params, params.count, [&] {
    KernelCall::Hooks hooks = {{"maximum", maximum_hook(dtype)}};
    add_window_hooks(pooling, hooks, true, false);
    return hooks;
  });
}

void pool_max_backward(const Pooling& pooling, const Tensor& grad_out, const Tensor& indices,
                       const Tensor& grad_in) {
  if (grad_in.numel() == 0) {
    return;
  }
  TORCH_CHECK(indices.sizes() == grad_out.sizes(), pooling.op, "(): indices of size ",
              indices.sizes(), " do not belong to a gradient of size ", grad_out.sizes());
  const DType dtype = *native_dtype(grad_in.scalar_type());
  KernelCall call(pooling.op, "pool_max_backward");
  call.add_output("in", grad_in, dtype);
  call.add_input("out", grad_out, dtype);
  call.add_input("index", indices, DType::kI64);
  const Spatial walked(grad_in, pooling.dims);
  Params params = make_params(pooling, walked, Spatial(grad_out, pooling.dims), walked);
  params.index = Spatial(indices, pooling.dims).layout();
  call.run(variant(kMaxBackward, pooling), params, params.count, [&] {
    KernelCall::Hooks hooks;
    add_window_hooks(pooling, hooks, false, true);
    return hooks;
  });
}

void pool_average(const Pooling& pooling, const Tensor& in, const Tensor& out) {
  if (out.numel() == 0) {
    return;
  }
  const DType dtype = *native_dtype(in.scalar_type());
  KernelCall call(pooling.op, "pool_average");
  call.add_output("out", out, dtype);
  call.add_input("in", in, dtype);
  const Spatial walked(out, pooling.dims);
  const Params params = make_params(pooling, Spatial(in, pooling.dims), walked, walked);
  call.run(variant(kAverage, pooling), params, params.count, [&] {
    KernelCall::Hooks hooks;
    if (dtype == DType::kI64) {
      hooks = {{"mean", "fn plus(a: in_t, b: in_t) -> in_t { return add_l(a, b); }\n"
                        "fn mean(sum: in_t, divisor: i32) -> in_t { return div_l(sum, "
                        "l_from_i(divisor)); }"}};
    }
    add_window_hooks(pooling, hooks, true, false);
    return hooks;
  });
}

void pool_average_backward(const Pooling& pooling, const Tensor& grad_out, const Tensor& grad_in) {
  if (grad_in.numel() == 0) {
    return;
  }
  const DType dtype = *native_dtype(grad_in.scalar_type());
  KernelCall call(pooling.op, "pool_average_backward");
  call.add_output("in", grad_in, dtype);
  call.add_input("out", grad_out, dtype);
  const Spatial walked(grad_in, pooling.dims);
  const Params params = make_params(pooling, walked, Spatial(grad_out, pooling.dims), walked);
  call.run(variant(kAverageBackward, pooling), params, params.count, [&] {
    KernelCall::Hooks hooks;
    add_window_hooks(pooling, hooks, true, true);
    return hooks;
  });
}

} // namespace torch_webgpu
