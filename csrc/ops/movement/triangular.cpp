// tril and triu.
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "kernels/triangular.h"
#include "launch/common.h"
#include "launch/halves.h"
#include "structured_ops.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
namespace kernel = kernels::triangular;

constexpr uint32_t kMaxDims = std::tuple_size_v<decltype(kernel::Params::dims)>;

void triangle(const char* name, bool upper, const Tensor& self, int64_t diagonal,
              const Tensor& out) {
  if (self.numel() == 0) {
    return;
  }
  if (!is_countable(self)) {
    in_halves(self.sizes(), -1, [&](int64_t along, int64_t begin, int64_t size) {
      const int64_t moved = along == self.dim() - 2   ? begin  // rows
                            : along == self.dim() - 1 ? -begin // columns
                                                      : 0;
      triangle(name, upper, self.narrow(along, begin, size), diagonal + moved,
               out.narrow(along, begin, size));
    });
    return;
  }
  if (self.dim() > kMaxDims) { // as one batch
    const Tensor matrices = self.contiguous().view({-1, self.size(-2), self.size(-1)});
    const Tensor result = at::empty_like(matrices);
    triangle(name, upper, matrices, diagonal, result);
    out.copy_(result.view(out.sizes()));
    return;
  }
  kernel::Params params;
  params.count = static_cast<uint32_t>(self.numel());
  params.rank = bounded_rank(name, self.dim(), kMaxDims);
  params.diagonal =
      static_cast<int32_t>(std::clamp<int64_t>(diagonal, -(int64_t{1} << 31), INT32_MAX));
  for (uint32_t k = 0; k < params.rank; ++k) {
    const int64_t d = params.rank - 1 - k;
    params.dims[k] = {static_cast<uint32_t>(self.size(d)), static_cast<uint32_t>(out.stride(d)),
                      static_cast<uint32_t>(self.stride(d))};
  }
  kernel::Launch launch(name);
  launch.out(out).in(self).upper(upper);
  launch.run(params, launch.grid_of(params.count), kernel::params_bytes(params.rank));
}

} // namespace

void structured_tril_out::impl(const Tensor& self, int64_t diagonal, const Tensor& out) {
  triangle("tril", false, self, diagonal, out);
}

void structured_triu_out::impl(const Tensor& self, int64_t diagonal, const Tensor& out) {
  triangle("triu", true, self, diagonal, out);
}

} // namespace torch_webgpu
