// The row kernels of layer and group normalization, and the sums of all normalization layers.
#include "backend/tensor.h"
#include "ops/norm/norm.h"

#include <ATen/TensorIterator.h>
#include <ATen/ceil_div.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <initializer_list>

#include "backend/empty.h"
#include "kernels/norm_rows.h"
#include "kernels/norm_rows_backward.h"
#include "kernels/norm_vectors.h"
#include "kernels/norm_vectors_backward.h"
#include "launch/dtypes.h"
#include "launch/row_lanes.h"
#include "launch/target_scope.h"
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

// Vectors of a row that an invocation keeps in registers, at most.
constexpr uint32_t kMaxVectors = 8;
constexpr uint32_t kMaxGradientVectors = 4;
// Workgroups of a kernel that sums over rows: enough to fill any GPU, but far fewer than the rows
// of a large tensor, because each workgroup writes rows of sums.
constexpr int64_t kSummingWorkgroups = 264;

bool starts_word(const Tensor& tensor) { return byte_offset(tensor) % 4 == 0; }

// How the kernels share rows of vectors among invocations.
struct VectorPlan {
  uint32_t vectors; // of a row
  RowLanes lanes;

  VectorPlan(const Rows& rows, const Tensor& y, uint32_t workgroup = RowLanes::kWorkgroup)
      : vectors(static_cast<uint32_t>(rows.length * y.itemsize() / kVectorBytes)),
        lanes(vectors, 1, 2, workgroup) {}

  template <class Params>
  Params params(const Rows& rows) const {
    TORCH_INTERNAL_ASSERT(rows.rows * rows.length < int64_t{1} << 31);
    Params params;
    params.rows = static_cast<uint32_t>(rows.rows);
    params.vectors = vectors;
    params.lanes_log2 = lanes.lanes_log2;
    params.groups = static_cast<uint32_t>(rows.groups);
    return params;
  }

  // Gives the launch what both kernels take, and runs it. `mean` and `weight` may be undefined.
  template <class Dtype, class Launch, class Params>
  void run(Launch& launch, const Params& params, const Tensor& y, const Tensor& x,
           const Tensor& mean, const Tensor& rstd, const Tensor& weight) const {
    launch.y_as(DType::kBits128, y).x_as(DType::kBits128, x).rstd(rstd);
    if (mean.defined()) {
      launch.mean(mean);
    }
    if (weight.defined()) {
      launch.weight_as(DType::kBits128, weight);
    }
    launch.dtype(vector_dtype<Dtype>(y));
    launch.centered(mean.defined()).items(lanes.items(vectors, 1)).alone(false);
    launch.run(params);
  }
};

void normalize_vectors(const char* op, const Rows& rows, const Tensor& x, const Tensor& weight,
                       const Tensor& bias, double eps, const Tensor& y, const Tensor& mean,
                       const Tensor& rstd) {
  namespace kernel = kernels::norm_vectors;
  const VectorPlan plan(rows, y);
  auto params = plan.params<kernel::Params>(rows);
  params.eps = static_cast<float>(eps);
  kernel::Launch launch(op);
  if (bias.defined()) {
    launch.bias_as(DType::kBits128, bias);
  }
  plan.run<kernel::Dtype>(launch, params, y, x, mean, rstd, weight);
}

void sum_of_rows(const Tensor& sum, const Tensor& rows) {
  auto iter = reduction({sum.view({1, -1})}, {rows});
  reduce(iter, ReduceOp::sum_op);
}

void gradient_of_vectors(const char* op, const Rows& rows, const Tensor& gradient, const Tensor& x,
                         const Tensor& mean, const Tensor& rstd, const Tensor& weight,
                         const Tensor& y, const Tensor& weight_gradient,
                         const Tensor& bias_gradient, uint32_t workgroup) {
  namespace kernel = kernels::norm_vectors_backward;
  const VectorPlan plan(rows, y, workgroup);
  auto params = plan.params<kernel::Params>(rows);
  kernel::Launch launch(op);
  launch.gradient_as(DType::kBits128, gradient).row_slots(workgroup);
  const int64_t at_once = workgroup / plan.lanes.lanes();
  auto workgroups = static_cast<int64_t>(plan.lanes.workgroups(params.rows));
  Tensor weight_sums;
  Tensor bias_sums;
  if (weight_gradient.defined() || bias_gradient.defined()) {
    workgroups = std::min(workgroups, kSummingWorkgroups);
    const auto sums = [&] {
      return empty_webgpu({workgroups * at_once, rows.length}, at::kFloat, x.device());
    };
    if (weight_gradient.defined()) {
      weight_sums = sums();
      launch.weight_sums_as(DType::kBits128, weight_sums);
    }
    if (bias_gradient.defined()) {
      bias_sums = sums();
      launch.bias_sums_as(DType::kBits128, bias_sums);
    }
  }
  params.workgroups = static_cast<uint32_t>(workgroups);
  params.steps = static_cast<uint32_t>(at::ceil_div(rows.rows, workgroups * at_once));
  plan.run<kernel::Dtype>(launch, params, y, x, mean, rstd, weight);
  if (weight_sums.defined()) {
    sum_of_rows(weight_gradient, weight_sums);
  }
  if (bias_sums.defined()) {
    sum_of_rows(bias_gradient, bias_sums);
  }
}

// How many invocations compute the gradient of a row of vectors: twice as many where the row is too
// long for the registers of the usual ones.
uint32_t gradient_workgroup(const Rows& rows, const Tensor& y) {
  constexpr uint32_t kWide = 2 * RowLanes::kWorkgroup;
  const int64_t bytes = rows.length * static_cast<int64_t>(y.itemsize());
  const bool is_long = bytes > kVectorBytes * kMaxGradientVectors * RowLanes::kWorkgroup;
  return is_long && plan_target(y).max_workgroup_invocations >= kWide ? kWide
                                                                      : RowLanes::kWorkgroup;
}

bool has_one_lane(const Rows& rows, const Tensor& y) {
  return RowLanes::suits_one(static_cast<uint32_t>(rows.length), plan_target(y));
}

// How a kernel shares rows among invocations, and the parameters that say so.
template <class Params>
struct RowPlan {
  Params params{};
  bool alone;
  RowLanes lanes;
  bool pairs;

  // `operands`: the tensors with one element per element of y, and the weights.
  RowPlan(const char* op, const Rows& rows, const Tensor& y,
          std::initializer_list<const Tensor*> operands)
      : alone(has_one_lane(rows, y)),
        lanes(alone ? RowLanes::one() : RowLanes(static_cast<uint32_t>(rows.length), 1)),
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
  }

  // Gives the launch what both kernels take, and runs it. `mean` and `weight` may be undefined.
  template <class Launch>
  void run(Launch& launch, const Rows& rows, const Tensor& mean, const Tensor& weight) const {
    if (mean.defined()) {
      launch.mean(mean);
    }
    if (weight.defined()) {
      launch.weight(weight);
    }
    if (pairs) {
      launch.own_words_of_y();
    }
    launch.centered(mean.defined()).per_element(rows.inner == 1);
    // One lane reads its row again: it would not keep much of it in registers.
    launch.alone(alone);
    launch.items(lanes.items(params.length, pairs ? 2 : 1, alone ? 2 : RowLanes::kMaxItems));
    launch.run(params);
  }
};

} // namespace

void normalize_rows(const char* op, const Rows& rows, const Tensor& x, const Tensor& weight,
                    const Tensor& bias, double eps, const Tensor& y, const Tensor& mean,
                    const Tensor& rstd) {
  if (rows.inner == 1 && !has_one_lane(rows, y) &&
      are_row_vectors(rows.rows, rows.length, y, {&x, &weight, &bias},
                      kMaxVectors * RowLanes::kWorkgroup)) {
    normalize_vectors(op, rows, x, weight, bias, eps, y, mean, rstd);
    return;
  }
  namespace kernel = kernels::norm_rows;
  RowPlan<kernel::Params> plan(op, rows, y, {&x, &weight, &bias});
  plan.params.eps = static_cast<float>(eps);
  kernel::Launch launch(op);
  launch.y(y).rstd(rstd).x(x);
  if (bias.defined()) {
    launch.bias(bias);
  }
  plan.run(launch, rows, mean, weight);
}

void gradient_of_rows(const char* op, const Rows& rows, const Tensor& gradient, const Tensor& x,
                      const Tensor& mean, const Tensor& rstd, const Tensor& weight, const Tensor& y,
                      const Tensor& weight_gradient, const Tensor& bias_gradient) {
  const uint32_t workgroup = gradient_workgroup(rows, y);
  if (rows.inner == 1 && are_row_vectors(rows.rows, rows.length, y, {&gradient, &x, &weight},
                                         kMaxGradientVectors * workgroup)) {
    gradient_of_vectors(op, rows, gradient, x, mean, rstd, weight, y, weight_gradient,
                        bias_gradient, workgroup);
    return;
  }
  if (weight_gradient.defined() || bias_gradient.defined()) {
    gradient_of_weights(rows, gradient, x, mean, rstd, weight_gradient, bias_gradient);
  }
  namespace kernel = kernels::norm_rows_backward;
  RowPlan<kernel::Params> plan(op, rows, y, {&gradient, &x, &weight});
  kernel::Launch launch(op);
  launch.y(y).gradient(gradient).x(x).rstd(rstd);
  plan.run(launch, rows, mean, weight);
}

void gradient_of_weights(const Rows& rows, const Tensor& gradient, const Tensor& x,
                         const Tensor& mean, const Tensor& rstd, const Tensor& weight_gradient,
                         const Tensor& bias_gradient) {
  const Tensor& given = weight_gradient.defined() ? weight_gradient : bias_gradient;
  const int64_t n = rows.length;
  // The kernel always writes both sums.
  const auto out = [&](const Tensor& sum) {
    return sum.defined() ? sum.view({1, n})
                         : empty_webgpu({1, n}, given.scalar_type(), given.device());
  };
  const auto elements = [&](const Tensor& tensor) { return tensor.view({rows.rows, n}); };
  const auto numbers = [&](const Tensor& tensor) { return tensor.view({rows.rows, 1}); };
  const Tensor center = mean.defined() ? numbers(mean) : at::zeros({1, 1}, rstd.options());
  normalized_sums(out(bias_gradient), out(weight_gradient), elements(gradient), elements(x), center,
                  numbers(rstd));
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
