// torchvision::nms. Registered before torchvision is loaded: it works from then on.
#include <ATen/ops/index_select.h>
#include <ATen/ops/sort.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/empty.h"
#include "backend/graph.h"
#include "backend/registration.h"
#include "kernels/nms_pairs.h"
#include "kernels/nms_select.h"
#include "launch/common.h"
#include "launch/dtypes.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

constexpr int64_t kPartBytes = int64_t{64} << 20; // of the bits of a part of the boxes

// The largest float32 that is not above `threshold`. A float32 is above both or neither.
float rounded_down(double threshold) {
  const float nearest = static_cast<float>(threshold);
  return nearest > threshold ? std::nextafter(nearest, -std::numeric_limits<float>::infinity())
                             : nearest;
}

Tensor nms(const Tensor& dets, const Tensor& scores, double iou_threshold) {
  check_same_device("nms", {{dets, "dets"}, {scores, "scores"}});
  TORCH_CHECK(dets.dim() == 2, "boxes should be a 2d tensor, got ", dets.dim(), "D");
  TORCH_CHECK(dets.size(1) == 4, "boxes should have 4 elements in dimension 1, got ", dets.size(1));
  TORCH_CHECK(scores.dim() == 1, "scores should be a 1d tensor, got ", scores.dim(), "D");
  TORCH_CHECK(dets.size(0) == scores.size(0),
              "boxes and scores should have same number of elements in dimension 0, got ",
              dets.size(0), " and ", scores.size(0));
  TORCH_CHECK_NOT_IMPLEMENTED(is_native_float(dets), "\"nms_kernel\" not implemented for '",
                              dets.scalar_type(), "'");
  TORCH_CHECK(dets.scalar_type() == scores.scalar_type(),
              "dets should have the same type as scores");
  const int64_t count = dets.size(0);
  if (count == 0) {
    return empty_webgpu({0}, at::kLong, dets.device());
  }
  TORCH_CHECK_NOT_IMPLEMENTED(count < int64_t{1} << 28, "nms(): more than 2^28 boxes");
  check_not_capturing("torchvision::nms", "it reads the size of its result on the host");
  const Tensor order = std::get<1>(at::sort(scores, /*stable=*/true, 0, /*descending=*/true));
  const Tensor boxes = at::index_select(dets, 0, order);
  const int64_t words = (count + 31) / 32;
  // A multiple of 32: the boxes of a word are in one part.
  const int64_t part =
      std::min(words * 32, std::max<int64_t>(32, kPartBytes / (4 * words) / 32 * 32));
  const Tensor bits = empty_webgpu({part * words}, at::kInt, dets.device());
  const Tensor state = empty_webgpu({words + 1}, at::kInt, dets.device()).zero_();
  const Tensor keep = empty_webgpu({count}, at::kLong, dets.device());
  for (int64_t first = 0; first < count; first += part) {
    const auto rows = static_cast<uint32_t>(std::min(part, count - first));
    kernels::nms_pairs::Launch pairs("nms");
    pairs.bits_as(DType::kBits32, bits).boxes(boxes);
    pairs.run({.first = static_cast<uint32_t>(first),
               .rows = rows,
               .boxes = static_cast<uint32_t>(count),
               .words = static_cast<uint32_t>(words),
               .threshold = rounded_down(iou_threshold)});
    kernels::nms_select::Launch select("nms");
    select.bits_as(DType::kBits32, bits).state_as(DType::kBits32, state).order(order).keep(keep);
    select.run({.first = static_cast<uint32_t>(first),
                .rows = rows,
                .words = static_cast<uint32_t>(words)});
  }
  uint32_t kept = 0;
  context_of(state).stream.read(buffer_of(state), byte_offset(state) + words * 4, &kept, 4);
  return keep.narrow(0, 0, kept);
}

TW_LIBRARY_IMPL(torchvision, PrivateUse1, m) { m.impl("nms", TORCH_FN(nms)); }

} // namespace
} // namespace torch_webgpu
