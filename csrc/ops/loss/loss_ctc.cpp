// The connectionist temporal classification loss and its gradient.
#include <ATen/TensorUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_ctc_loss_backward_ops.h>
#include <ATen/ops/_ctc_loss_ops.h>
#include <ATen/ops/tensor.h>
#include <torch/library.h>

#include <algorithm>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "launch/kernel_call.h"

namespace torch_webgpu {
namespace {

using at::IntArrayRef;
using at::Tensor;

constexpr PipelineFamily kWalk = PipelineFamily::kCtcWalk;
constexpr PipelineFamily kGradient = PipelineFamily::kCtcGradient;

uint32_t word(int64_t value) { return static_cast<uint32_t>(value); }

// Mirrors the beginning of the parameters of both kernels.
struct Sizes {
  uint32_t steps;
  uint32_t states;
  uint32_t classes;
  uint32_t blank;
};

struct Strides {
  uint32_t offset;
  uint32_t step;
  uint32_t batch;
  uint32_t cls;
};

// Mirrors Params of ctc.wgsl.
struct WalkParams {
  Sizes sizes;
  uint32_t backwards;
  Strides x;
  uint32_t out_offset;
  uint32_t loss_offset;
  uint32_t label_offset;
  uint32_t sequence_offset;
};

// Mirrors Params of ctc_gradient.wgsl.
struct GradientParams {
  Sizes sizes;
  uint32_t batches;
  uint32_t zero_infinity;
  Strides x;
  uint32_t out_offset;
  uint32_t gradient_offset;
  uint32_t loss_offset;
  uint32_t alpha_offset;
  uint32_t beta_offset;
  uint32_t label_offset;
  uint32_t sequence_offset;
};

// Arguments as the kernels take them.
class Problem {
public:
  Problem(const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths,
          IntArrayRef target_lengths, int64_t blank, int64_t max_target)
      : x_(log_probs), labels_(targets.to(at::kInt).contiguous()) {
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
    sizes = {word(log_probs.size(0)), word(2 * max_target + 1), word(log_probs.size(2)),
             word(blank)};
    strides = {element_begin(log_probs), word(log_probs.stride(0)), word(log_probs.stride(1)),
               word(log_probs.stride(2))};
    TORCH_CHECK_NOT_IMPLEMENTED(log_probs.numel() < int64_t{1} << 31 &&
                                    batches * log_probs.size(0) * (2 * max_target + 1) < int64_t{1}
                                                                                             << 31,
                                "ctc_loss(): more than 2^31 elements");
  }

  // alpha, and the loss with it; or beta.
  void walk(const Tensor& out, const Tensor& loss, bool backwards) const {
    KernelCall call("ctc_loss", "ctc");
    call.add_output("out", out, DType::kF32);
    call.add_output("loss", loss, DType::kF32);
    add_inputs(call);
    const WalkParams params{sizes,
                            backwards ? 1u : 0u,
                            strides,
                            element_begin(out),
                            element_begin(loss),
                            element_begin(labels_),
                            element_begin(sequences_)};
    call.run_groups({kWalk, 0, 0}, params, {word(x_.size(1)), 1, 1},
                    [] { return KernelCall::Hooks{}; });
  }

  void add_inputs(KernelCall& call) const {
    call.add_input("x", x_, DType::kF32);
    add_sequences(call);
  }
  void add_sequences(KernelCall& call) const {
    call.add_input("label", labels_, DType::kI32);
    call.add_input("sequence", sequences_, DType::kI32);
  }
  uint32_t label_offset() const { return element_begin(labels_); }
  uint32_t sequence_offset() const { return element_begin(sequences_); }

  Sizes sizes;
  Strides strides;

private:
  const Tensor& x_;
  Tensor labels_;
  Tensor sequences_;
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

// Checks as the CPU does; gives the length of the longest target.
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
  Tensor loss = empty_webgpu({batches}, at::kFloat);
  Tensor alpha = empty_webgpu({batches, log_probs.size(0), 2 * longest + 1}, at::kFloat);
  Problem(log_probs, targets, input_lengths, target_lengths, blank, longest)
      .walk(alpha, loss, /*backwards=*/false);
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
  const Tensor beta = empty_webgpu(alpha.sizes(), at::kFloat);
  Tensor unused = empty_webgpu({1}, at::kFloat);
  problem.walk(beta, unused, /*backwards=*/true);

  const Tensor gradient = grad.contiguous();
  const Tensor losses = loss.contiguous();
  Tensor out = empty_webgpu(log_probs.sizes(), at::kFloat);
  KernelCall call("ctc_loss_backward", "ctc_gradient");
  call.add_output("out", out, DType::kF32);
  call.add_input("x", log_probs, DType::kF32);
  call.add_input("gradient", gradient, DType::kF32);
  call.add_input("loss", losses, DType::kF32);
  call.add_input("alpha", alpha, DType::kF32);
  call.add_input("beta", beta, DType::kF32);
  problem.add_sequences(call);
  const GradientParams params{
      problem.sizes,       word(log_probs.size(1)), zero_infinity ? 1u : 0u,  problem.strides,
      element_begin(out),  element_begin(gradient), element_begin(losses),    element_begin(alpha),
      element_begin(beta), problem.label_offset(),  problem.sequence_offset()};
  const uint64_t cells = static_cast<uint64_t>(log_probs.size(0) * log_probs.size(1));
  call.run_groups({kGradient, 0, 0}, params, context().stream.grid_1d(cells, 1),
                  [] { return KernelCall::Hooks{}; });
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_ctc_loss", TORCH_FN(ctc_loss));
  m.impl("_ctc_loss_backward", TORCH_FN(ctc_loss_backward));
}

} // namespace
} // namespace torch_webgpu
