// The connectionist temporal classification loss and its gradient.
#include <ATen/TensorUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_ctc_loss_backward_ops.h>
#include <ATen/ops/_ctc_loss_ops.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/registration.h"
#include "kernels/ctc.h"
#include "kernels/ctc_gradient.h"
#include "launch/common.h"

namespace torch_webgpu {
namespace {

using at::IntArrayRef;
using at::Tensor;

uint32_t word(int64_t value) { return static_cast<uint32_t>(value); }

// Arguments as the kernels take them.
class Problem {
public:
  Problem(const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths,
          IntArrayRef target_lengths, int64_t blank, int64_t max_target)
      : x_(log_probs), labels_(targets.to(at::kInt).contiguous()),
        states_(word(2 * max_target + 1)), blank_(word(blank)) {
    const int64_t batches = log_probs.size(1);
    std::vector<int32_t> sequences;
    int64_t first = 0;
    for (int64_t b = 0; b < batches; ++b) {
      sequences.push_back(static_cast<int32_t>(input_lengths[b]));
      sequences.push_back(static_cast<int32_t>(target_lengths[b]));
      sequences.push_back(static_cast<int32_t>(first));
      first += targets.dim() == 1 ? target_lengths[b] : targets.size(1);
    }
    sequences_ = at::tensor(sequences, at::kInt).to(log_probs.device());
    TORCH_CHECK_NOT_IMPLEMENTED(log_probs.numel() < int64_t{1} << 31 &&
                                    batches * log_probs.size(0) * (2 * max_target + 1) < int64_t{1}
                                                                                             << 31,
                                "ctc_loss(): more than 2^31 elements");
  }

  // Fills `out` with alpha and `loss` with the losses, or, without `loss`, fills `out` with beta.
  void walk(const Tensor& out, const Tensor& loss) const {
    kernels::ctc::Launch launch("ctc_loss");
    launch.out(out);
    if (loss.defined()) {
      launch.loss(loss);
    }
    add_inputs(launch);
    launch.run(params<kernels::ctc::Params>(), {word(x_.size(1)), 1, 1});
  }

  void gradient(const Tensor& out, const Tensor& gradient, const Tensor& loss, const Tensor& alpha,
                const Tensor& beta, bool zero_infinity) const {
    kernels::ctc_gradient::Launch launch("ctc_loss_backward");
    launch.out(out).gradient(gradient).loss(loss).alpha(alpha).beta(beta);
    add_inputs(launch);
    auto params = this->params<kernels::ctc_gradient::Params>();
    params.batches = word(x_.size(1));
    params.zero_infinity = zero_infinity ? 1 : 0;
    launch.run(params, launch.grid_of_groups(static_cast<uint64_t>(x_.size(0) * x_.size(1))));
  }

private:
  template <class Launch>
  void add_inputs(Launch& launch) const {
    launch.x(x_).label(labels_).sequence(sequences_);
  }

  // The parameters that both kernels share.
  template <class Params>
  Params params() const {
    Params params;
    params.steps = word(x_.size(0));
    params.states = states_;
    params.classes = word(x_.size(2));
    params.blank = blank_;
    params.x_step = word(x_.stride(0));
    params.x_batch = word(x_.stride(1));
    params.x_class = word(x_.stride(2));
    return params;
  }

  const Tensor& x_;
  Tensor labels_;
  Tensor sequences_;
  uint32_t states_;
  uint32_t blank_;
};

void check_lengths(const char* name, IntArrayRef lengths, int64_t batches, int64_t limit) {
  TORCH_CHECK(static_cast<int64_t>(lengths.size()) == batches, name, " must be of size batch_size");
  for (const int64_t length : lengths) {
    TORCH_CHECK(length >= 0, "Expected ", name, " to have value at least 0, but got value ", length,
                " (while checking arguments for ctc_loss_allocate_outputs)");
    TORCH_CHECK(limit < 0 || length <= limit, "Expected ", name, " to have value at most ", limit,
                ", but got value ", length,
                " (while checking arguments for ctc_loss_allocate_outputs)");
  }
}

// Makes the checks of the CPU's operator. Returns the length of the longest target.
int64_t check_arguments(const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths,
                        IntArrayRef target_lengths, int64_t blank) {
  const at::CheckedFrom from = "ctc_loss_allocate_outputs";
  const at::TensorArg log_probs_arg(log_probs, "log_probs", 1);
  const at::TensorArg targets_arg(targets, "targets", 2);
  TORCH_CHECK(log_probs.numel() > 0, "log_probs tensor must not be empty");
  at::checkScalarType(from, targets_arg, targets.scalar_type() == at::kLong ? at::kLong : at::kInt);
  at::checkDim(from, log_probs_arg, 3);
  at::checkDimRange(from, targets_arg, 1, 3);
  const int64_t batches = log_probs.size(1);
  TORCH_CHECK(0 <= blank && blank < log_probs.size(2), "blank must be in label range");
  check_lengths("input_lengths", input_lengths, batches, log_probs.size(0));
  check_lengths("target_lengths", target_lengths, batches, -1);
  int64_t longest = 0;
  int64_t all = 0;
  for (const int64_t length : target_lengths) {
    longest = std::max(longest, length);
    all += length;
  }
  if (targets.dim() == 1) {
    at::checkSize(from, targets_arg, 0, all);
    return longest;
  }
  at::checkSize(from, targets_arg, 0, batches);
  TORCH_CHECK(targets.size(1) >= longest, "Expected tensor to have size at least ", longest,
              " at dimension 1, but got size ", targets.size(1), " for ", targets_arg,
              " (while checking arguments for ", from, ")");
  return targets.size(1);
}

std::tuple<Tensor, Tensor> ctc_loss(const Tensor& log_probs, const Tensor& targets,
                                    IntArrayRef input_lengths, IntArrayRef target_lengths,
                                    int64_t blank, bool zero_infinity) {
  if (log_probs.scalar_type() != at::kFloat) {
    TORCH_CHECK_NOT_IMPLEMENTED(log_probs.scalar_type() == at::kDouble,
                                "\"ctc_loss_cpu\" not implemented for '", log_probs.scalar_type(),
                                "'");
    return call_cpu_fallback<at::_ops::_ctc_loss>::call(log_probs, targets, input_lengths,
                                                        target_lengths, blank, zero_infinity);
  }
  check_same_device("_ctc_loss", {{log_probs, "log_probs"}, {targets, "targets"}});
  const int64_t longest = check_arguments(log_probs, targets, input_lengths, target_lengths, blank);
  const int64_t batches = log_probs.size(1);
  Tensor loss = empty_webgpu({batches}, at::kFloat, log_probs.device());
  Tensor alpha =
      empty_webgpu({batches, log_probs.size(0), 2 * longest + 1}, at::kFloat, log_probs.device());
  Problem(log_probs, targets, input_lengths, target_lengths, blank, longest).walk(alpha, loss);
  return {loss, alpha};
}

Tensor ctc_loss_backward(const Tensor& grad, const Tensor& log_probs, const Tensor& targets,
                         IntArrayRef input_lengths, IntArrayRef target_lengths, const Tensor& loss,
                         const Tensor& log_alpha, int64_t blank, bool zero_infinity) {
  if (log_probs.scalar_type() != at::kFloat) {
    return call_cpu_fallback<at::_ops::_ctc_loss_backward>::call(
        grad, log_probs, targets, input_lengths, target_lengths, loss, log_alpha, blank,
        zero_infinity);
  }
  check_same_device("_ctc_loss_backward", {{grad, "grad"},
                                           {log_probs, "log_probs"},
                                           {targets, "targets"},
                                           {loss, "neg_log_likelihood"},
                                           {log_alpha, "log_alpha"}});
  const int64_t longest = check_arguments(log_probs, targets, input_lengths, target_lengths, blank);
  const int64_t batches = log_probs.size(1);
  TORCH_CHECK(grad.sizes() == at::IntArrayRef({batches}) && loss.sizes() == grad.sizes() &&
                  log_alpha.sizes() ==
                      at::IntArrayRef({batches, log_probs.size(0), 2 * longest + 1}),
              "_ctc_loss_backward(): the gradient, the loss or alpha does not belong to log_probs ",
              "of size ", log_probs.sizes());
  const Problem problem(log_probs, targets, input_lengths, target_lengths, blank, longest);
  const Tensor alpha = log_alpha.contiguous();
  const Tensor beta = empty_webgpu(alpha.sizes(), at::kFloat, alpha.device());
  problem.walk(beta, {});
  Tensor out = empty_webgpu(log_probs.sizes(), at::kFloat, log_probs.device());
  problem.gradient(out, grad.contiguous(), loss.contiguous(), alpha, beta, zero_infinity);
  return out;
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_ctc_loss", TORCH_FN(ctc_loss));
  m.impl("_ctc_loss_backward", TORCH_FN(ctc_loss_backward));
}

} // namespace
} // namespace torch_webgpu
