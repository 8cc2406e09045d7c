// segment_reduce and its gradient. Segments are given by their lengths or by their bounds.
#include <ATen/core/Tensor.h>
#include <ATen/native/SegmentReduce.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "launch/dtypes.h"
#include "launch/kernel_call.h"
#include "launch/stub.h"

namespace torch_webgpu {
namespace {

using namespace at::native;
using at::Tensor;
using Initial = std::optional<at::Scalar>;

constexpr PipelineFamily kForward = PipelineFamily::kSegmentReduce;
constexpr PipelineFamily kBackward = PipelineFamily::kSegmentReduceBackward;
constexpr uint32_t kWorkgroup = 64;

// Mirrors Params of segment_reduce.wgsl, and of segment_reduce_backward.wgsl, which has two more.
struct Params {
  uint32_t results;
  uint32_t segments;
  uint32_t inner;
  uint32_t size;
  uint32_t lanes;
  uint32_t mean;
  uint32_t has_initial;
  float initial;
  uint32_t out_offset;
  uint32_t x_offset;
  uint32_t bound_offset;
  uint32_t gradient_offset;
  uint32_t result_offset;
};

Tensor bounds_of_lengths(const Tensor& lengths) {
  auto first = lengths.sizes().vec();
  first.back() = 1;
  return at::cat({at::zeros(first, lengths.options()), lengths.cumsum(-1, lengths.scalar_type())},
                 -1);
}

// `bounds` and `data` are contiguous; `result` has the results' sizes.
Params make_params(ReductionType reduction, const Tensor& data, const Tensor& bounds,
                   const Tensor& result, const Initial& initial) {
  const int64_t axis = bounds.dim() - 1;
  TORCH_CHECK_NOT_IMPLEMENTED(data.numel() < int64_t{1} << 31 && result.numel() < int64_t{1} << 25,
                              "segment_reduce(): too many elements");
  Params params{};
  params.results = static_cast<uint32_t>(result.numel());
  params.segments = static_cast<uint32_t>(bounds.size(-1) - 1);
  params.inner = 1;
  for (int64_t d = axis + 1; d < data.dim(); ++d) {
    params.inner *= static_cast<uint32_t>(data.size(d));
  }
  params.size = static_cast<uint32_t>(data.size(axis));
  // A workgroup for every long segment, an invocation for every short one.
  params.lanes = params.size / std::max(params.segments, 1u) >= kWorkgroup ? kWorkgroup : 1;
  params.mean = reduction == ReductionType::MEAN ? 1 : 0;
  params.has_initial = initial ? 1 : 0;
  params.initial = initial ? initial->to<float>() : 0.0f;
  params.x_offset = element_begin(data);
  params.bound_offset = element_begin(bounds);
  return params;
}

std::string reduction_hook(ReductionType reduction) {
  std::string identity = "0.0";
  std::string combine = "a + b";
  if (reduction == ReductionType::MAX) {
    identity = "-inf_f()";
    combine = "max_f(a, b)";
  } else if (reduction == ReductionType::MIN) {
    identity = "inf_f()";
    combine = "min_f(a, b)";
  } else if (reduction == ReductionType::PROD) {
    identity = "1.0";
    combine = "a * b";
  }
  return "fn identity() -> f32 { return " + identity +
         "; }\nfn combine(a: f32, b: f32) -> f32 { return " + combine + "; }";
}

KernelCall::Hooks gradient_hooks(ReductionType reduction) {
  const std::string signature = "fn element_gradient(x: u32, i: u32, begin: u32, end: u32, "
                                "result: f32, gradient: f32, count: u32) -> f32 {\n";
  switch (reduction) {
  case ReductionType::MAX:
  case ReductionType::MIN:
    // Only positive gradients are divided among equal elements: ATen's kernels do so.
    return {{"counted", "fn counted(x: f32, result: f32) -> u32 {\n"
                        "  return select(0u, 1u, is_nan_f(x) || x == result);\n}"},
            {"element_gradient",
             signature + "  if (counted(load_x(x + i * p.inner), result) == 0u) { return 0.0; }\n"
                         "  return select(gradient, gradient / f32(count), gradient > 0.0);\n}"}};
  case ReductionType::MEAN:
    return {{"element_gradient", signature + "  return div_f(gradient, f32(end - begin));\n}"}};
  case ReductionType::PROD:
    return {
        {"element_gradient",
         signature +
             "  let here = load_x(x + i * p.inner);\n"
             "  if (!is_nan_f(here) && here != 0.0) { return div_f(gradient * result, here); }\n"
             "  var others = select(1.0, p.initial, p.has_initial != 0u);\n"
             "  for (var j = begin; j < end; j++) {\n"
             "    if (j != i) { others *= load_x(x + j * p.inner); }\n"
             "  }\n"
             "  return gradient * others;\n}"}};
  default:
    return {};
  }
}

Tensor reduce_segments(ReductionType reduction, const Tensor& data, const Tensor& bounds,
                       const Initial& initial) {
  auto sizes = data.sizes().vec();
  sizes[bounds.dim() - 1] = bounds.size(-1) - 1;
  Tensor out = empty_webgpu(sizes, data.scalar_type());
  if (out.numel() == 0) {
    return out;
  }
  const Tensor words = bounds.to(at::kInt).contiguous();
  Params params = make_params(reduction, data, words, out, initial);
  params.out_offset = element_begin(out);
  const DType dtype = *native_dtype(data.scalar_type());
  KernelCall call("segment_reduce", "segment_reduce");
  call.add_output("out", out, dtype);
  call.add_input("x", data, dtype);
  call.add_input("bound", words, DType::kI32);
  call.run_groups({kForward, static_cast<uint64_t>(reduction), 0}, params,
                  context().stream.grid_1d(uint64_t{params.results} * params.lanes, kWorkgroup),
                  [&] { return KernelCall::Hooks{{"reduction", reduction_hook(reduction)}}; });
  return out;
}

Tensor gradient_of_segments(const Tensor& grad, const Tensor& output, const Tensor& data,
                            ReductionType reduction, const Tensor& bounds, const Initial& initial) {
  Tensor out = at::zeros(data.sizes(), grad.options()); // also what is in no segment
  if (out.numel() == 0 || output.numel() == 0) {
    return out;
  }
  const Tensor words = bounds.to(at::kInt).contiguous();
  Params params = make_params(reduction, data, words, output, initial);
  params.out_offset = element_begin(out);
  params.gradient_offset = element_begin(grad);
  params.result_offset = element_begin(output);
  const DType dtype = *native_dtype(data.scalar_type());
  KernelCall call("segment_reduce_backward", "segment_reduce_backward");
  call.add_output("out", out, dtype);
  call.add_input("x", data, dtype);
  call.add_input("bound", words, DType::kI32);
  call.add_input("gradient", grad, dtype);
  call.add_input("result", output, dtype);
  call.run_groups({kBackward, static_cast<uint64_t>(reduction), 0}, params,
                  context().stream.grid_1d(uint64_t{params.results} * params.lanes, kWorkgroup),
                  [&] { return gradient_hooks(reduction); });
  return out;
}

template <auto& stub, bool lengths>
Tensor forward(ReductionType reduction, const Tensor& data, const Tensor& segments, int64_t axis,
               const Initial& initial) {
  if (!is_native_float(data)) {
    note_fallback("aten::segment_reduce", std::string("for ") + c10::toString(data.scalar_type()));
    return std::remove_cvref_t<decltype(stub)>::DEFAULT(reduction, data.cpu(), segments.cpu(), axis,
                                                        initial)
        .to(data.device());
  }
  return reduce_segments(reduction, data, lengths ? bounds_of_lengths(segments) : segments,
                         initial);
}

template <auto& stub, bool lengths>
Tensor backward(const Tensor& grad, const Tensor& output, const Tensor& data,
                ReductionType reduction, const Tensor& segments, int64_t axis,
                const Initial& initial) {
  if (!is_native_float(data)) {
    note_fallback("aten::_segment_reduce_backward",
                  std::string("for ") + c10::toString(data.scalar_type()));
    return std::remove_cvref_t<decltype(stub)>::DEFAULT(grad.cpu(), output.cpu(), data.cpu(),
                                                        reduction, segments.cpu(), axis, initial)
        .to(data.device());
  }
  return gradient_of_segments(grad, output, data, reduction,
                              lengths ? bounds_of_lengths(segments) : segments, initial);
}

const RegisterStub<decltype(_segment_reduce_lengths_stub)>
    register_lengths(_segment_reduce_lengths_stub, &forward<_segment_reduce_lengths_stub, true>);
const RegisterStub<decltype(_segment_reduce_offsets_stub)>
    register_offsets(_segment_reduce_offsets_stub, &forward<_segment_reduce_offsets_stub, false>);
const RegisterStub<decltype(_segment_reduce_lengths_backward_stub)>
    register_lengths_backward(_segment_reduce_lengths_backward_stub,
                              &backward<_segment_reduce_lengths_backward_stub, true>);
const RegisterStub<decltype(_segment_reduce_offsets_backward_stub)>
    register_offsets_backward(_segment_reduce_offsets_backward_stub,
                              &backward<_segment_reduce_offsets_backward_stub, false>);

} // namespace
} // namespace torch_webgpu
