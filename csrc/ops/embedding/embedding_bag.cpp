// Bags of embeddings, and the norm limit of embedding tables: compositions of indexing, one
// dispatch per step and no synchronization.
#include <ATen/OpMathType.h>
#include <ATen/ops/_embedding_bag_dense_backward_ops.h>
#include <ATen/ops/_embedding_bag_ops.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "backend/fallback.h"
#include "backend/registration.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "ops/checks/check_values.h"
#include "ops/index/index_move.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
// The output, the bag of each index, the sizes of bags, and the indices of maxima. Shapes are those
// of CUDA, which torch.compile expects: a size for each offset, and no maxima in other modes.
using Bags = std::tuple<Tensor, Tensor, Tensor, Tensor>;

enum Mode : int64_t { kSum, kMean, kMax };

void check_arguments(const Tensor& weight, const Tensor& indices, const Tensor& offsets,
                     int64_t mode, const std::optional<Tensor>& per_sample_weights,
                     bool include_last_offset) {
  check_same_device("embedding_bag",
                    {{weight, "weight"}, {indices, "indices"}, {offsets, "offsets"}});
  for (const Tensor& index : {indices, offsets}) {
    TORCH_CHECK(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
                "expected scalar type Long or Int but found ", index.scalar_type());
  }
  TORCH_CHECK(offsets.dim() == 1, "offsets has to be a 1D Tensor, but got Tensor of dimension ",
              offsets.dim());
  TORCH_CHECK(weight.dim() == 2, "weight has to be a 2D Tensor, but got Tensor of dimension ",
              weight.dim());
  TORCH_CHECK(!include_last_offset || offsets.size(0) >= 1,
              "include_last_offset: number of offset should be at least 1");
  if (per_sample_weights && per_sample_weights->defined()) {
    TORCH_CHECK(mode == kSum, "embedding_bag: per_sample_weights only supported with mode='sum'");
    check_dtype(*per_sample_weights, weight.scalar_type());
    TORCH_CHECK(per_sample_weights->dim() == 1 && per_sample_weights->numel() == indices.numel(),
                "per_sample_weights has to be as long as the indices");
  }
}

// Element by element, the maximum over the rows of each bag, and the index that it comes from (-1
// for empty bags).
std::pair<Tensor, Tensor> bag_maxima(const Tensor& rows, const Tensor& bag, const Tensor& indices,
                                     const Tensor& kept, int64_t bags) {
  const double lowest = -std::numeric_limits<double>::infinity();
  const int64_t none = indices.numel();
  const Tensor candidates = rows.masked_fill(kept.logical_not().unsqueeze(1), lowest);
  const Tensor maxima = at::full({bags, rows.size(1)}, lowest, rows.options());
  index_combine("embedding_bag", StoreMode::kMaximum, maxima, 0, bag, candidates);
  // Among equal maxima, the first position is taken.
  const Tensor place = at::arange(none, bag.options().dtype(at::kInt)).unsqueeze(1);
  const Tensor is_maximum =
      candidates.eq(maxima.index_select(0, bag)).logical_and_(kept.unsqueeze(1));
  const Tensor places = place.expand(rows.sizes()).masked_fill(is_maximum.logical_not(), none);
  const Tensor first = at::full({bags, rows.size(1)}, none, place.options());
  index_combine("embedding_bag", StoreMode::kMinimum, first, 0, bag, places);
  const Tensor empty = first.eq(none);
  const Tensor chosen = indices.index_select(0, first.clamp_max(none - 1).reshape({-1}))
                            .view(first.sizes())
                            .masked_fill(empty, -1);
  return {maxima.masked_fill(empty, 0), chosen};
}

Bags embedding_bag(const Tensor& weight, const Tensor& indices, const Tensor& offsets,
                   bool scale_grad_by_freq, int64_t mode, bool sparse,
                   const std::optional<Tensor>& per_sample_weights, bool include_last_offset,
                   int64_t padding_idx) {
  TORCH_CHECK(indices.dim() == 1 || indices.dim() == 2,
              "input has to be a 1D or 2D Tensor, but got Tensor of dimension ", indices.dim());
  if (indices.dim() == 2) {
    return embedding_bag(weight, indices.reshape({-1}), offsets, scale_grad_by_freq, mode, sparse,
                         per_sample_weights, include_last_offset, padding_idx);
  }
  check_arguments(weight, indices, offsets, mode, per_sample_weights, include_last_offset);
  if (!native_dtype(weight.scalar_type())) {
    return call_cpu_fallback<at::_ops::_embedding_bag>::call(
        weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
        include_last_offset, padding_idx);
  }
  const int64_t bags = offsets.size(0) - (include_last_offset ? 1 : 0);
  const int64_t count = indices.numel();
  const auto options = indices.options();
  if (offsets.size(0) != 0) {
    require_true("embedding_bag", offsets.narrow(0, 0, 1).eq(0),
                 "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start "
                 "from position 0");
    require_true("embedding_bag", offsets.narrow(0, -1, 1).le(count),
                 "offsets[-1] can not be greater than input's length " + std::to_string(count));
  }
  if (count == 0 || bags == 0) {
    return {at::zeros({bags, weight.size(1)}, weight.options()), at::zeros({count}, options),
            at::zeros(offsets.sizes(), options),
            mode == kMax ? at::full({bags, weight.size(1)}, -1, options) : at::empty({0}, options)};
  }
  const Tensor positions = at::arange(count, options);
  const Tensor bag = at::searchsorted(offsets.narrow(0, 0, bags).to(options.dtype()), positions,
                                      /*out_int32=*/options.dtype() == at::kInt, /*right=*/true)
                         .sub(1);
  const Tensor kept = indices.ne(padding_idx);
  const Tensor sizes =
      at::zeros(offsets.sizes(), options).index_add_(0, bag, kept.to(options.dtype()));
  Tensor rows = weight.index_select(0, indices).to(at::toOpMathType(weight.scalar_type()));
  if (per_sample_weights && per_sample_weights->defined()) {
    rows = rows.mul(per_sample_weights->to(rows.scalar_type()).unsqueeze(1));
  }
  if (mode == kMax) {
    auto [maxima, chosen] = bag_maxima(rows, bag, indices, kept, bags);
    return {maxima.to(weight.scalar_type()), bag, sizes, chosen};
  }
  rows = rows.masked_fill(kept.logical_not().unsqueeze(1), 0);
  Tensor sums = at::zeros({bags, weight.size(1)}, rows.options()).index_add_(0, bag, rows);
  if (mode == kMean) {
    sums.div_(sizes.narrow(0, 0, bags).clamp_min(1).unsqueeze(1));
  }
  return {sums.to(weight.scalar_type()), bag, sizes, at::empty({0}, options)};
}

Tensor embedding_bag_dense_backward(const Tensor& grad, const Tensor& indices,
                                    const Tensor& offset2bag, const Tensor& bag_size,
                                    const Tensor& maximum_indices, int64_t num_weights,
                                    bool scale_grad_by_freq, int64_t mode,
                                    const std::optional<Tensor>& per_sample_weights,
                                    int64_t padding_idx) {
  if (!native_dtype(grad.scalar_type())) {
    return call_cpu_fallback_symint<at::_ops::_embedding_bag_dense_backward>::call(
        grad, indices, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode,
        per_sample_weights, padding_idx);
  }
  const at::ScalarType type = at::toOpMathType(grad.scalar_type());
  const Tensor from = grad.to(type);
  Tensor table = at::zeros({num_weights, grad.size(1)}, from.options());
  if (indices.numel() == 0) {
    return table.to(grad.scalar_type());
  }
  if (mode == kMax) { // each element goes to the row that its maximum came from
    const Tensor none = maximum_indices.lt(0);
    table.scatter_add_(0, maximum_indices.clamp_min(0).to(at::kLong), from.masked_fill(none, 0));
    return table.to(grad.scalar_type());
  }
  Tensor scale = at::full({indices.numel()}, 1, from.options());
  if (per_sample_weights && per_sample_weights->defined()) {
    scale = scale.mul(per_sample_weights->to(type));
  }
  if (mode == kMean) {
    scale = scale.div(bag_size.clamp_min(1).to(type).index_select(0, offset2bag));
  }
  if (scale_grad_by_freq) {
    const Tensor ones = at::full({1}, 1, from.options()).expand({indices.numel()});
    const Tensor counts = at::zeros({num_weights}, from.options()).index_add_(0, indices, ones);
    scale = scale.div(counts.index_select(0, indices));
  }
  scale = scale.masked_fill(indices.eq(padding_idx), 0);
  table.index_add_(0, indices, from.index_select(0, offset2bag).mul(scale.unsqueeze(1)));
  return table.to(grad.scalar_type());
}

Tensor embedding_bag_per_sample_weights_backward(const Tensor& grad, const Tensor& weight,
                                                 const Tensor& indices, const Tensor& offsets,
                                                 const Tensor& offset2bag, int64_t mode,
                                                 int64_t padding_idx) {
  TORCH_CHECK(mode == kSum,
              "embedding_bag_backward: per_sample_weights only supported for mode='sum'");
  const at::ScalarType type = at::toOpMathType(grad.scalar_type());
  const Tensor bag = offset2bag.numel() != 0 || indices.numel() == 0
                         ? offset2bag
                         : at::searchsorted(offsets, at::arange(indices.numel(), offsets.options()),
                                            false, /*right=*/true)
                               .sub(1);
  const Tensor products =
      grad.to(type).index_select(0, bag).mul(weight.to(type).index_select(0, indices)).sum(1);
  return products.masked_fill(indices.eq(padding_idx), 0).to(grad.scalar_type());
}

Tensor& embedding_renorm_(Tensor& self, const Tensor& indices, double max_norm, double norm_type) {
  check_same_device("embedding_renorm_", {{self, "self"}, {indices, "indices"}});
  TORCH_CHECK(self.dim() == 2, "Expected 2-dimensional tensor, but got ", self.dim(),
              "-dimensional tensor for argument #1 'self' (while checking arguments for ",
              "embedding_renorm_)");
  // A row whose index occurs twice is computed twice, with the same result.
  const Tensor index = indices.reshape({-1});
  const Tensor rows = self.index_select(0, index);
  const Tensor norms = at::linalg_vector_norm(rows, norm_type, 1, /*keepdim=*/true);
  const Tensor scale = norms.add(1e-7).reciprocal().mul(max_norm);
  const Tensor limited = at::where(norms.gt(max_norm), rows.mul(scale), rows);
  return self.index_copy_(0, index.to(at::kLong), limited);
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_embedding_bag", TORCH_FN(embedding_bag));
  m.impl("_embedding_bag_forward_only", TORCH_FN(embedding_bag));
  m.impl("_embedding_bag_dense_backward", TORCH_FN(embedding_bag_dense_backward));
  m.impl("_embedding_bag_per_sample_weights_backward",
         TORCH_FN(embedding_bag_per_sample_weights_backward));
  m.impl("embedding_renorm_", TORCH_FN(embedding_renorm_));
}

} // namespace
} // namespace torch_webgpu
