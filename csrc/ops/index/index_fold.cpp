// Combines index tensors if there are more than a kernel of walk.wgsl takes.
#include <ATen/ops/where.h>

#include <limits>

#include "ops/index/index_move.h"

namespace torch_webgpu {

void IndexList::fold() {
  if (tensors.size() <= kMaxMoveIndices) {
    return;
  }
  at::Tensor places;
  at::Tensor outside;
  int64_t reach = 1;
  for (size_t k = kMaxMoveIndices - 1; k < tensors.size(); ++k) {
    const at::Tensor index = tensors[k].to(at::kLong);
    const at::Tensor place = at::where(index.lt(0), index.add(sizes[k]), index).mul(strides[k]);
    const at::Tensor wrong = index.lt(-sizes[k]).logical_or_(index.ge(sizes[k]));
    places = places.defined() ? places.add(place) : place;
    outside = outside.defined() ? outside.logical_or(wrong) : wrong;
    reach += (sizes[k] - 1) * strides[k];
  }
  places.masked_fill_(outside, std::numeric_limits<int64_t>::min());
  tensors.resize(kMaxMoveIndices);
  sizes.resize(kMaxMoveIndices);
  strides.resize(kMaxMoveIndices);
  tensors.back() = places;
  sizes.back() = reach;
  strides.back() = 1;
}

} // namespace torch_webgpu
