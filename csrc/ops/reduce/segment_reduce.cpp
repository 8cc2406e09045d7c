// segment_reduce and its gradient. Segments are given by their lengths or by their bounds.
#include <ATen/core/Tensor.h>
#include <ATen/native/SegmentReduce.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "kernels/segment_reduce.h"
#include "kernels/segment_reduce_backward.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "launch/stub.h"

namespace torch_webgpu {
namespace {

using namespace at::native;
using at::Tensor;
using Initial = std::optional<at::Scalar>;

Tensor bounds_of_lengths(const Tensor& lengths) {
  auto first = lengths.sizes().vec();
  first.back() = 1;
  return at::cat({at::zeros(first, lengths.options()), lengths.cumsum(-1, lengths.scalar_type())},
                 -1);
}

// `Reduction` is that of the kernel.
template <class Reduction>
Reduction reduction_of(ReductionType type) {
  switch (type) {
  case ReductionType::MAX:
    return Reduction::maximum;
  case ReductionType::MIN:
    return Reduction::minimum;
  case ReductionType::MEAN:
    return Reduction::mean;
  case ReductionType::PROD:
    return Reduction::product;
  default:
    return Reduction::sum;
  }
}

// Runs a kernel whose own operands are set. `bounds` and `data` are contiguous; `result` has the
// results' sizes.
template <class Params, class Launch>
void run(Launch& launch, const Tensor& data, const Tensor& bounds, const Tensor& result,
         const Initial& initial) {
  const int64_t axis = bounds.dim() - 1;
  TORCH_CHECK_NOT_IMPLEMENTED(data.numel() < int64_t{1} << 31 && result.numel() < int64_t{1} << 25,
                              "segment_reduce(): too many elements");
  Params params;
  params.results = static_cast<uint32_t>(result.numel());
  params.segments = static_cast<uint32_t>(bounds.size(-1) - 1);
  params.inner = 1;
  for (int64_t d = axis + 1; d < data.dim(); ++d) {
    params.inner *= static_cast<uint32_t>(data.size(d));
  }
  params.size = static_cast<uint32_t>(data.size(axis));
  // A workgroup for every long segment, an invocation for every short one.
  constexpr uint32_t kLanes = kernels::segment_reduce::kWorkgroup;
  static_assert(kLanes == kernels::segment_reduce_backward::kWorkgroup);
  params.lanes = params.size / std::max(params.segments, 1u) >= kLanes ? kLanes : 1;
  params.has_initial = initial ? 1 : 0;
  params.initial = initial ? initial->to<float>() : 0.0f;
  launch.x(data).bound(bounds);
  launch.run(params, launch.grid_of(uint64_t{params.results} * params.lanes));
}

Tensor reduce_segments(ReductionType reduction, const Tensor& data, const Tensor& bounds,
                       const Initial& initial) {
  auto sizes = data.sizes().vec();
  sizes[bounds.dim() - 1] = bounds.size(-1) - 1;
  Tensor out = empty_webgpu(sizes, data.scalar_type(), data.device());
  if (out.numel() == 0) {
    return out;
  }
  const Tensor words = bounds.to(at::kInt).contiguous();
  namespace kernel = kernels::segment_reduce;
  kernel::Launch launch("segment_reduce");
  launch.out(out).reduction(reduction_of<kernel::Reduction>(reduction));
  run<kernel::Params>(launch, data, words, out, initial);
  return out;
}

Tensor gradient_of_segments(const Tensor& grad, const Tensor& output, const Tensor& data,
                            ReductionType reduction, const Tensor& bounds, const Initial& initial) {
  Tensor out = at::zeros(data.sizes(), grad.options()); // elements in no segment stay 0
  if (out.numel() == 0 || output.numel() == 0) {
    return out;
  }
  const Tensor words = bounds.to(at::kInt).contiguous();
  check_dtype(grad, data.scalar_type());
  check_dtype(output, data.scalar_type());
  namespace kernel = kernels::segment_reduce_backward;
  kernel::Launch launch("segment_reduce_backward");
  launch.out(out).gradient(grad).result(output);
  launch.reduction(reduction_of<kernel::Reduction>(reduction));
  run<kernel::Params>(launch, data, words, output, initial);
  return out;
}

template <auto& stub, bool lengths>
Tensor forward(ReductionType reduction, const Tensor& data, const Tensor& segments, int64_t axis,
               const Initial& initial) {
  if (!is_native_float(data)) {
    note_fallback("aten::segment_reduce", data.scalar_type());
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
