#include "ops/reduce/reduce.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/clone.h>

#include <utility>
#include <vector>

#include "backend/empty.h"
#include "launch/operand_view.h"
#include "ops/reduce/reduce_launch.h"

namespace torch_webgpu {
namespace {

using at::TensorIteratorBase;

// The same on dense copies of the inputs, with new outputs that are copied to the iterator's.
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
      outputs.emplace_back(view, empty_webgpu(view.sizes(), view.scalar_type()));
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

} // namespace

void reduce(TensorIteratorBase& iter, ReduceOp op, c10::ArrayRef<c10::Scalar> scalars) {
  if (iter.output().numel() == 0) {
    return;
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
