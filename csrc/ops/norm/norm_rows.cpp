// The row kernels of layer and group normalization, and the sums of all normalization layers.
#include "backend/tensor.h"
#include "ops/norm/norm.h"

#include <ATen/TensorIterator.h>

#include <algorithm>
#include <array>
#include <bit>
#include <initializer_list>

#include "kernels/norm_rows.h"
#include "kernels/norm_rows_backward.h"
#include "launch/dtypes.h"
#include "launch/row_lanes.h"
#include "ops/reduce/reduce.h"

namespace torch_webgpu {

bool are_native_floats(std::initializer_list<at::Tensor> tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& t) { return !t.defined() || is_native_float(t); });
}

at::Tensor packed(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && tensor->defined() ? tensor->contiguous() : at::Tensor();
}

namespace {

using at::Tensor;

at::TensorIterator reduction(std::initializer_list<Tensor> outputs,
                             std::initializer_list<Tensor> inputs) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false).resize_outputs(false);
  config.is_reduction(true);
  for (const Tensor& output : outputs) {
    config.add_owned_output(output);
  }
  for (const Tensor& input : inputs) {
    config.add_owned_const_input(input);
  }
  return config.build();
}

constexpr uint32_t kElementsPerLane = 4;
constexpr uint32_t kMaxItems = 32; // elements of a row that an invocation keeps in registers

bool starts_word(const Tensor& tensor) { return byte_offset(tensor) % 4 == 0; }

// How a kernel shares rows among invocations, and the parameters that say so.
template <class Params>
struct RowPlan {
  Params params{};
  RowLanes lanes;
  bool pairs;
  uint32_t items;

  // `operands` are those that have an element for each of y's, and the weights.
  RowPlan(const char* op, const Rows& rows, const Tensor& y,
          std::initializer_list<const Tensor*> operands, uint32_t max_items)
      : lanes(static_cast<uint32_t>(rows.length), 1, kElementsPerLane),
        pairs(y.itemsize() == 2 && rows.length % 2 == 0 && starts_word(y) &&
              std::ranges::all_of(operands, [](const Tensor* operand) {
                return !operand->defined() || starts_word(*operand);
              })) {
    TORCH_CHECK_NOT_IMPLEMENTED(rows.rows * rows.length < int64_t{1} << 31, op,
                                "(): more than 2^31 elements");
    params.rows = static_cast<uint32_t>(rows.rows);
    params.length = static_cast<uint32_t>(rows.length);
    params.groups = static_cast<uint32_t>(rows.groups);
    params.channels = static_cast<uint32_t>(rows.channels);
    params.inner = static_cast<uint32_t>(rows.inner);
    params.lanes_log2 = lanes.lanes_log2;
    const uint32_t each = (params.length + lanes.lanes() - 1) / lanes.lanes();
    items = std::clamp(std::bit_ceil(each), pairs ? 2u : 1u, max_items);
  }
};

} // namespace

void normalize_rows(const char* op, const Rows& rows, const Tensor& x, const Tensor& weight,
                    const Tensor& bias, double eps, const Tensor& y, const Tensor& mean,
                    const Tensor& rstd) {
  namespace kernel = kernels::norm_rows;
  RowPlan<kernel::Params> plan(op, rows, y, {&x, &weight, &bias}, kMaxItems);
  plan.params.eps = static_cast<float>(eps);
  kernel::Launch launch(op);
  launch.y(y).rstd(rstd).x(x);
  if (mean.defined()) {
    launch.mean(mean);
  }
  if (weight.defined()) {
    launch.weight(weight);
  }
  if (bias.defined()) {
    launch.bias(bias);
  }
  if (plan.pairs) {
    launch.own_words_of_y();
  }
  launch.centered(mean.defined()).per_element(rows.inner == 1).items(plan.items);
  launch.run(plan.params, launch.grid_of_groups(plan.lanes.workgroups(plan.params.rows)));
}

void gradient_of_rows(const char* op, const Rows& rows, const Tensor& gradient, const Tensor& x,
                      const Tensor& mean, const Tensor& rstd, const Tensor& weight,
                      const Tensor& y) {
  namespace kernel = kernels::norm_rows_backward;
  RowPlan<kernel::Params> plan(op, rows, y, {&gradient, &x, &weight}, kMaxItems);
  kernel::Launch launch(op);
  launch.y(y).gradient(gradient).x(x).rstd(rstd);
  if (mean.defined()) {
    launch.mean(mean);
  }
  if (weight.defined()) {
    launch.weight(weight);
  }
  if (plan.pairs) {
    launch.own_words_of_y();
  }
  launch.centered(mean.defined()).per_element(rows.inner == 1).items(plan.items);
  launch.run(plan.params, launch.grid_of_groups(plan.lanes.workgroups(plan.params.rows)));
}

void moments(const Tensor& var, const Tensor& mean, const Tensor& input) {
  auto iter = reduction({var, mean}, {input});
  reduce(iter, ReduceOp::variance_op, {c10::Scalar(0), c10::Scalar(false)});
}

void normalized_sums(const Tensor& sum, const Tensor& product, const Tensor& gradient,
                     const Tensor& input, const Tensor& mean, const Tensor& rstd) {
  auto iter = reduction({sum, product}, {gradient, input, mean, rstd});
  reduce(iter, ReduceOp::normalized_sums_op);
}

} // namespace torch_webgpu
