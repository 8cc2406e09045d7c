// histogram and histogramdd: ATen finds the edges, the stubs here count between them.
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Histogram.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "backend/fallback.h"
#include "launch/dtypes.h"
#include "launch/stub.h"

namespace torch_webgpu {
namespace {

using namespace at::native;
using at::Tensor;
using at::TensorList;

template <class Count>
void count_on_cpu(const Tensor& input, const std::optional<Tensor>& weight, Tensor& hist,
                  TensorList edges, Count&& count) {
  note_fallback("aten::histogram", input.scalar_type());
  std::vector<Tensor> host_edges;
  for (const Tensor& edge : edges) {
    host_edges.push_back(edge.cpu());
  }
  const auto host_weight = weight ? std::optional<Tensor>(weight->cpu()) : std::nullopt;
  Tensor host_hist = hist.cpu();
  count(input.cpu(), host_weight, host_hist, TensorList(host_edges));
  hist.copy_(host_hist);
}

// A bin includes its left edge but not its right one. The last bin includes both.
void count(const Tensor& input, const std::optional<Tensor>& weight, bool density, Tensor& hist,
           TensorList edges) {
  const int64_t dims = input.size(-1);
  const Tensor points = input.reshape({-1, dims});
  Tensor place; // in the flattened histogram
  Tensor inside;
  for (int64_t d = 0; d < dims; ++d) {
    const Tensor x = points.select(1, d).contiguous();
    const Tensor edge = edges[d].contiguous();
    const int64_t bins = edge.numel() - 1;
    const Tensor here = x.ge(edge[0]).logical_and_(x.le(edge[bins]));
    const Tensor bin = at::searchsorted(edge, x, /*out_int32=*/true, /*right=*/true)
                           .sub_(1)
                           .clamp_(0, std::max<int64_t>(bins - 1, 0));
    place = d == 0 ? bin : place.mul_(bins).add_(bin);
    inside = d == 0 ? here : inside.logical_and_(here);
  }
  // Counts are exact; weights add up in float32.
  const bool weighted = weight && weight->defined();
  const auto options = hist.options().dtype(weighted ? at::kFloat : at::kInt);
  const Tensor amounts =
      weighted ? weight->reshape({-1}).to(at::kFloat).masked_fill(inside.logical_not(), 0)
               : inside.to(at::kInt);
  Tensor sums = at::zeros({hist.numel()}, options);
  if (points.size(0) != 0 && hist.numel() != 0) {
    sums.index_add_(0, place.masked_fill(inside.logical_not(), 0), amounts);
  }
  hist.copy_(sums.view(hist.sizes()));
  if (density) {
    hist.div_(hist.sum());
    for (int64_t d = 0; d < dims; ++d) {
      at::DimVector shape(dims, 1);
      shape[d] = hist.size(d);
      hist.div_(edges[d].diff().reshape(shape));
    }
  }
}

void histogramdd(const Tensor& input, const std::optional<Tensor>& weight, bool density,
                 Tensor& hist, const TensorList& edges) {
  if (is_native_float(input)) {
    return count(input, weight, density, hist, edges);
  }
  count_on_cpu(input, weight, hist, edges, [&](auto&& x, auto& w, Tensor& h, auto&& e) {
    call_on_cpu(histogramdd_stub, x, w, density, h, e);
  });
}

// For evenly spaced edges. (The CPU then computes bins without a search; here both cases search.)
void histogramdd_linear(const Tensor& input, const std::optional<Tensor>& weight, bool density,
                        Tensor& hist, const TensorList& edges, bool local_search) {
  if (is_native_float(input)) {
    return count(input, weight, density, hist, edges);
  }
  count_on_cpu(input, weight, hist, edges, [&](auto&& x, auto& w, Tensor& h, auto&& e) {
    call_on_cpu(histogramdd_linear_stub, x, w, density, h, e, local_search);
  });
}

void select_outer_bin_edges(const Tensor& input, int64_t dims, std::vector<double>& leftmost,
                            std::vector<double>& rightmost) {
  const auto [min, max] = at::aminmax(input, 0);
  const Tensor lows = min.cpu().to(at::kDouble);
  const Tensor highs = max.cpu().to(at::kDouble);
  std::copy_n(lows.const_data_ptr<double>(), dims, leftmost.begin());
  std::copy_n(highs.const_data_ptr<double>(), dims, rightmost.begin());
}

const RegisterStub<decltype(histogramdd_stub)> register_dd(histogramdd_stub, &histogramdd);
const RegisterStub<decltype(histogramdd_linear_stub)> register_linear(histogramdd_linear_stub,
                                                                      &histogramdd_linear);
const RegisterStub<decltype(histogram_select_outer_bin_edges_stub)>
    register_edges(histogram_select_outer_bin_edges_stub, &select_outer_bin_edges);

} // namespace
} // namespace torch_webgpu
