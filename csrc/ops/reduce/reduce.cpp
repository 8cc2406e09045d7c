#include "ops/reduce/reduce.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/max.h>
#include <ATen/ops/min.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/empty.h"
#include "launch/operand_view.h"
#include "launch/target_scope.h"
#include "ops/reduce/reduce_launch.h"

namespace torch_webgpu {
namespace {

using at::TensorIteratorBase;

// Runs the reduction on dense copies of the inputs. The outputs are new tensors too, which are then
// copied to the iterator's.
void reduce_copies(const TensorIteratorBase& iter, ReduceOp op,
                   c10::ArrayRef<c10::Scalar> scalars) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false)
      .resize_outputs(false)
      .check_all_same_dtype(false)
      .is_reduction(true);
  const at::DimVector shape(iter.shape().rbegin(), iter.shape().rend()); // outermost first
  std::vector<std::pair<at::Tensor, at::Tensor>> outputs; // the iterator's, and new ones
  for (int k = 0; k < iter.ntensors(); ++k) {
    const at::Tensor view = operand_view(iter, k);
    if (k < iter.noutputs()) {
      outputs.emplace_back(view, empty_webgpu(view.sizes(), view.scalar_type(), view.device()));
      config.add_output(outputs.back().second);
    } else {
      // The view has size 1 where the stride is zero. A reduction counts every repeated element, so
      // the copy is expanded again.
      config.add_owned_const_input(view.clone().expand(shape));
    }
  }
  auto apart = config.build();
  reduce(apart, op, scalars);
  for (const auto& [target, result] : outputs) {
    target.copy_(result);
  }
}

// Whether positions among the reduced elements of a result fit into the kernel's 32-bit indices.
bool places_fit(const TensorIteratorBase& iter) {
  const uint64_t most = 2 * plan_target(iter.tensor_base(0)).max_elements;
  return static_cast<uint64_t>(iter.numel()) < most ||
         static_cast<uint64_t>(iter.numel() / iter.num_output_elements()) < most;
}

// The extreme and its position where places_fit() is false: first in each part of the elements,
// then among the results of the parts.
void reduce_long_runs(const TensorIteratorBase& iter, ReduceOp op) {
  const int input = iter.noutputs();
  const at::DimVector shape(iter.shape().rbegin(), iter.shape().rend()); // outermost first
  const at::Tensor x = operand_view(iter, input).expand(shape);
  int64_t dim = 0;
  while (iter.strides(0)[iter.ndim() - 1 - dim] != 0 || x.size(dim) == 1) {
    ++dim;
  }
  const bool largest = op == ReduceOp::argmax_op || op == ReduceOp::max_with_index_op;
  const auto extreme = [&](const at::Tensor& of, int64_t along) {
    return largest ? at::max(of, along, /*keepdim=*/true) : at::min(of, along, /*keepdim=*/true);
  };
  const auto step = static_cast<int64_t>(plan_target(x).max_elements);
  std::vector<at::Tensor> values;
  std::vector<at::Tensor> places;
  for (int64_t begin = 0; begin < x.size(dim); begin += step) {
    auto [value, place] = extreme(x.narrow(dim, begin, std::min(step, x.size(dim) - begin)), dim);
    values.push_back(value);
    places.push_back(place.add_(begin));
  }
  const auto [value, part] = extreme(at::cat(values, dim), dim);
  operand_view(iter, input - 1).copy_(at::cat(places, dim).gather(dim, part));
  if (input == 2) {
    operand_view(iter, 0).copy_(value);
  }
}

} // namespace

void reduce(TensorIteratorBase& iter, ReduceOp op, c10::ArrayRef<c10::Scalar> scalars) {
  if (iter.output().numel() == 0) {
    return;
  }
  if (row(op).indexed && !places_fit(iter)) {
    return reduce_long_runs(iter, op);
  }
  switch (launch_reduction(iter, op, scalars)) {
  case ReduceOutcome::kDone:
    return;
  case ReduceOutcome::kCopy:
    return reduce_copies(iter, op, scalars);
  case ReduceOutcome::kSplit:
    break;
  }
  at::TensorIterator rest(iter);
  int dim = rest.ndim() - 1;
  while (rest.strides(0)[dim] == 0 || rest.shape()[dim] < 2) { // is reduced, or cannot be split
    --dim;
  }
  auto first = rest.split(dim);
  reduce(*first, op, scalars);
  reduce(rest, op, scalars);
}

} // namespace torch_webgpu
