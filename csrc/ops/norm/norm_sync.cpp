// The parts of batch normalization over the batches of several processes, composed of other
// operators. nn.SyncBatchNorm calls them, and communicates between them: the moments of each
// process's batch, those of all batches, the normalization, and the sums and the input's gradient.
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/var_mean.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/registration.h"
#include "launch/common.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using TwoTensors = std::tuple<Tensor, Tensor>;

constexpr int64_t kChannels = 1; // the dimension

std::vector<int64_t> other_dims(const Tensor& input) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < input.dim(); ++d) {
    if (d != kChannels) {
      dims.push_back(d);
    }
  }
  return dims;
}

// A value for each channel in the shape that broadcasts with the input.
Tensor by_channel(const Tensor& values, const Tensor& input) {
  std::vector<int64_t> sizes(input.dim(), 1);
  sizes[kChannels] = input.size(kChannels);
  return values.view(sizes);
}

bool is_given(const OptionalTensor& tensor) { return tensor.has_value() && tensor->defined(); }

void check_input(const char* op, const Tensor& input) {
  TORCH_CHECK(input.dim() >= 2, op, ": expected an input of at least 2 dimensions, got ",
              input.dim());
}

at::ScalarType wide(const Tensor& input) { return at::toOpMathType(input.scalar_type()); }

// Mean and 1 / sqrt(biased variance + eps) of each channel.
TwoTensors batch_norm_stats(const Tensor& input, double eps) {
  check_input("batch_norm_stats", input);
  const auto dims = other_dims(input);
  auto [variance, mean] = at::var_mean(input.to(wide(input)), dims, /*correction=*/0);
  return {mean, (variance + eps).rsqrt()};
}

// The same of several batches together. mean, invstd: a row for each batch. counts: elements of a
// channel in each. Moves the running statistics towards them, the variance unbiased.
TwoTensors batch_norm_gather_stats_with_counts(const Tensor& input, const Tensor& mean,
                                               const Tensor& invstd,
                                               const OptionalTensor& running_mean,
                                               const OptionalTensor& running_var, double momentum,
                                               double eps, const Tensor& counts) {
  check_same_device("batch_norm_gather_stats_with_counts",
                    {{input, "input"}, {mean, "mean"}, {invstd, "invstd"}, {counts, "counts"}});
  const at::ScalarType type = wide(mean);
  const Tensor weights = counts.to(type).unsqueeze(1);
  const Tensor count = weights.sum();
  const Tensor means = mean.to(type);
  const Tensor total_mean = (means * weights).sum(0) / count;
  // The sum of squares around the mean of all: around each mean, and of the means.
  const Tensor variances = invstd.to(type).pow(-2) - eps;
  const Tensor squares = ((variances + (means - total_mean).square()) * weights).sum(0);
  if (is_given(running_mean)) {
    running_mean->mul_(1 - momentum).add_(total_mean, momentum);
  }
  if (is_given(running_var)) {
    running_var->mul_(1 - momentum).add_(squares / (count - 1), momentum);
  }
  return {total_mean, (squares / count + eps).rsqrt()};
}

Tensor batch_norm_elemt(const Tensor& input, const OptionalTensor& weight,
                        const OptionalTensor& bias, const Tensor& mean, const Tensor& invstd,
                        double /*eps*/) {
  check_input("batch_norm_elemt", input);
  const at::ScalarType type = wide(input);
  Tensor scale = invstd.to(type);
  if (is_given(weight)) {
    scale = scale * weight->to(type);
  }
  const Tensor centred = input.to(type) - by_channel(mean.to(type), input);
  Tensor output = centred * by_channel(scale, input);
  if (is_given(bias)) {
    output = output + by_channel(bias->to(type), input);
  }
  return output.to(input.scalar_type());
}

// By channel: sums of dy and of dy (x - mean), and the gradients of weight and bias. Undefined
// where nobody asks for it.
std::tuple<Tensor, Tensor, Tensor, Tensor>
batch_norm_backward_reduce(const Tensor& grad_out, const Tensor& input, const Tensor& mean,
                           const Tensor& invstd, const OptionalTensor& weight, bool input_g,
                           bool weight_g, bool bias_g) {
  check_input("batch_norm_backward_reduce", input);
  check_same_device("batch_norm_backward_reduce",
                    {{grad_out, "grad_out"}, {input, "input"}, {mean, "mean"}});
  const at::ScalarType type = wide(input);
  const auto dims = other_dims(input);
  const Tensor gradient = grad_out.to(type);
  const Tensor sum = gradient.sum(dims);
  const Tensor sum_centred =
      (gradient * (input.to(type) - by_channel(mean.to(type), input))).sum(dims);
  const at::ScalarType narrow = is_given(weight) ? weight->scalar_type() : type;
  return {input_g ? sum : Tensor(), input_g ? sum_centred : Tensor(),
          weight_g ? (sum_centred * invstd.to(type)).to(narrow) : Tensor(),
          bias_g ? sum.to(narrow).clone() : Tensor()};
}

// The input's gradient from the sums over all batches. count: elements of a channel in each batch.
Tensor batch_norm_backward_elemt(const Tensor& grad_out, const Tensor& input, const Tensor& mean,
                                 const Tensor& invstd, const OptionalTensor& weight,
                                 const Tensor& sum_dy, const Tensor& sum_dy_xmu,
                                 const Tensor& count) {
  check_input("batch_norm_backward_elemt", input);
  check_same_device("batch_norm_backward_elemt",
                    {{grad_out, "grad_out"}, {input, "input"}, {sum_dy, "sum_dy"}});
  const at::ScalarType type = wide(input);
  const Tensor total = count.sum().to(type);
  const Tensor deviation = invstd.to(type);
  const Tensor slope = deviation.square() * sum_dy_xmu.to(type) / total;
  const Tensor scale = is_given(weight) ? deviation * weight->to(type) : deviation;
  const Tensor centred = input.to(type) - by_channel(mean.to(type), input);
  const Tensor gradient = grad_out.to(type) - by_channel(sum_dy.to(type) / total, input) -
                          centred * by_channel(slope, input);
  return (gradient * by_channel(scale, input)).to(input.scalar_type());
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("batch_norm_stats", batch_norm_stats);
  m.impl("batch_norm_gather_stats_with_counts", batch_norm_gather_stats_with_counts);
  m.impl("batch_norm_elemt", batch_norm_elemt);
  m.impl("batch_norm_backward_reduce", batch_norm_backward_reduce);
  m.impl("batch_norm_backward_elemt", batch_norm_backward_elemt);
}

} // namespace
} // namespace torch_webgpu
