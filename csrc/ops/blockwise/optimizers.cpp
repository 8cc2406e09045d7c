// bitsandbytes' optimizers: steps with states of 8 bits in blocks, and with float32 states.
#include <ATen/core/Tensor.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "backend/empty.h"
#include "backend/registration.h"
#include "backend/tensor.h"
#include "kernels/optimizer_blocks.h"
#include "kernels/optimizer_states.h"
#include "launch/common.h"
#include "launch/dtypes.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Rule = kernels::optimizer_blocks::Rule;

constexpr int64_t kBlock = 256;

struct Hyperparameters {
  double beta1, beta2, beta3, alpha, eps, weight_decay, lr, gradient_scale;
  int64_t step; // this one included
};

Rule rule_of(const char* op, std::string_view name) {
  if (name == "adam" || name == "lamb") {
    return Rule::adam;
  }
  if (name == "momentum" || name == "lars") {
    return Rule::momentum;
  }
  if (name == "ademamix") {
    return Rule::ademamix;
  }
  if (name == "lion") {
    return Rule::lion;
  }
  if (name == "rmsprop") {
    return Rule::rmsprop;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(name == "adagrad", op, "(): there is no optimizer '", name, "'");
  return Rule::adagrad;
}

bool keeps_squares(Rule rule) { return rule == Rule::adam || rule == Rule::ademamix; }

// The decay of weights is a factor of the parameter, else a part of the gradient.
bool decouples_decay(Rule rule) { return keeps_squares(rule) || rule == Rule::lion; }

template <typename Params>
Params params_of(Rule rule, const Hyperparameters& h, int64_t count) {
  // Means that start at zero are too small by these factors. They are taken out of the fraction.
  double correction1 = 1;
  double correction2 = 1;
  if (keeps_squares(rule)) {
    correction1 = 1 - std::pow(h.beta1, h.step);
    correction2 = std::sqrt(1 - std::pow(h.beta2, h.step));
  }
  const bool decoupled = decouples_decay(rule);
  return {.count = static_cast<uint32_t>(count),
          .first_step = h.step == 1 ? 1u : 0u,
          .scale = static_cast<float>(h.gradient_scale),
          .rate = static_cast<float>(h.lr * correction2 / correction1),
          .decay = static_cast<float>(decoupled ? 1 - h.lr * h.weight_decay : 1),
          .l2 = static_cast<float>(decoupled ? 0 : h.weight_decay),
          .beta1 = static_cast<float>(h.beta1),
          .beta1_rest = static_cast<float>(1 - h.beta1),
          .beta2 = static_cast<float>(h.beta2),
          .beta2_rest = static_cast<float>(1 - h.beta2),
          .beta3 = static_cast<float>(h.beta3),
          .beta3_rest = static_cast<float>(1 - h.beta3),
          .slow = static_cast<float>(h.alpha * correction1),
          .eps = static_cast<float>(h.eps * correction2)};
}

void check_state(const char* op, const char* name, const Tensor& state, const Tensor& p,
                 at::ScalarType type, int64_t count) {
  check_same_device(op, {{p, "p"}, {state, name}});
  TORCH_CHECK(state.scalar_type() == type && state.numel() == count && state.is_contiguous(), op,
              ": expected ", name, " to be contiguous with ", count, " elements of ", type,
              ", got sizes ", state.sizes(), " of ", state.scalar_type());
}

bool is_in_other_order(const OptionalTensor& state) {
  return state.has_value() && state->defined() && !state->is_contiguous();
}

// Elements of states go with those of the parameter by their indices. States that were saved
// elsewhere may have another order in memory: the step is taken on copies then.
template <typename Step>
bool stepped_on_copies(Tensor state1, OptionalTensor state2, Step step) {
  if (!is_in_other_order(state1) && !is_in_other_order(state2)) {
    return false;
  }
  const Tensor dense1 = state1.contiguous();
  OptionalTensor dense2 = state2;
  if (is_in_other_order(state2)) {
    dense2 = state2->contiguous();
  }
  step(dense1, dense2);
  if (!dense1.is_same(state1)) {
    state1.copy_(dense1);
  }
  if (is_in_other_order(state2)) {
    state2->copy_(*dense2);
  }
  return true;
}

const Tensor& given(const char* op, const char* name, const OptionalTensor& tensor) {
  TORCH_CHECK(tensor.has_value() && tensor->defined(), op, ": this optimizer needs ", name);
  return *tensor;
}

void check_parameter(const char* op, const Tensor& g, const Tensor& p, bool skip_zeros) {
  check_same_device(op, {{p, "p"}, {g, "g"}});
  TORCH_CHECK(is_native_float(p), op, ": expected p to be float32, float16 or bfloat16, got ",
              p.scalar_type());
  TORCH_CHECK(g.numel() == p.numel() && g.scalar_type() == p.scalar_type(), op, ": g of sizes ",
              g.sizes(), " of ", g.scalar_type(), " does not go with p of sizes ", p.sizes(),
              " of ", p.scalar_type());
  TORCH_CHECK(p.is_contiguous() && g.is_contiguous(), op, ": expected p and g to be contiguous");
  TORCH_CHECK_NOT_IMPLEMENTED(p.numel() < std::numeric_limits<int32_t>::max(), op,
                              "(): ", p.numel(), " elements, more than kernels count");
  TORCH_CHECK_NOT_IMPLEMENTED(!skip_zeros, op, "(): skip_zeros is not supported");
}

// Whether the tensor has whole words for itself. Those of float32 elements always are.
bool has_words(const Tensor& tensor) {
  return tensor.itemsize() < 4 && byte_offset(tensor) % 4 == 0 && tensor.numel() % 4 == 0 &&
         tensor.storage().nbytes() == static_cast<size_t>(tensor.numel() * tensor.itemsize());
}

void update_8bit(std::string_view name, Tensor g, Tensor p, Tensor state1, OptionalTensor state2,
                 double beta1, double beta2, double beta3, double alpha, double eps, int64_t step,
                 double lr, Tensor qmap1, OptionalTensor qmap2, Tensor absmax1,
                 OptionalTensor absmax2, double weight_decay, double gnorm_scale, bool skip_zeros) {
  constexpr const char* op = "optimizer_update_8bit_blockwise";
  if (stepped_on_copies(state1, state2, [&](const Tensor& dense1, const OptionalTensor& dense2) {
        update_8bit(name, g, p, dense1, dense2, beta1, beta2, beta3, alpha, eps, step, lr, qmap1,
                    qmap2, absmax1, absmax2, weight_decay, gnorm_scale, skip_zeros);
      })) {
    return;
  }
  const Rule rule = rule_of(op, name);
  check_parameter(op, g, p, skip_zeros);
  const int64_t count = p.numel();
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  const bool has_slow = rule == Rule::ademamix;
  const int64_t means = has_slow ? 2 : 1;
  check_state(op, "state1", state1, p, at::kByte, means * count);
  check_state(op, "absmax1", absmax1, p, at::kFloat, means * blocks);
  check_state(op, "qmap1", qmap1, p, at::kFloat, kBlock);
  if (keeps_squares(rule)) {
    check_state(op, "state2", given(op, "state2", state2), p, at::kByte, count);
    check_state(op, "absmax2", given(op, "absmax2", absmax2), p, at::kFloat, blocks);
    check_state(op, "qmap2", given(op, "qmap2", qmap2), p, at::kFloat, kBlock);
  }
  if (count == 0) {
    return;
  }
  namespace kernel = kernels::optimizer_blocks;
  kernel::Launch launch(op);
  launch.rule(rule).parameter(p).gradient(g).mean_table(qmap1);
  if (has_words(p)) {
    launch.own_words_of_parameter();
  }
  Tensor mean = state1, mean_absmax = absmax1, slow, slow_absmax;
  if (has_slow) { // both lie in one tensor, so that neither owns words
    mean = state1.view({2, count}).select(0, 0);
    slow = state1.view({2, count}).select(0, 1);
    mean_absmax = absmax1.view({2, blocks}).select(0, 0);
    slow_absmax = absmax1.view({2, blocks}).select(0, 1);
    launch.slow(slow).slow_absmax(slow_absmax);
  }
  launch.mean(mean).mean_absmax(mean_absmax);
  if (!has_slow && has_words(mean)) {
    launch.own_words_of_mean();
  }
  if (keeps_squares(rule)) {
    launch.square(*state2).square_absmax(*absmax2).square_table(*qmap2);
    if (has_words(*state2)) {
      launch.own_words_of_square();
    }
  }
  launch.run(
      params_of<kernel::Params>(
          rule, {beta1, beta2, beta3, alpha, eps, weight_decay, lr, gnorm_scale, step}, count),
      launch.grid_of_groups(static_cast<uint64_t>(blocks)));
}

void update_32bit(std::string_view name, Tensor g, Tensor p, Tensor state1, OptionalTensor state2,
                  OptionalTensor unorm_vec, double max_unorm, double param_norm, double beta1,
                  double beta2, double beta3, double alpha, double eps, double weight_decay,
                  int64_t step, double lr, double gnorm_scale, bool skip_zeros) {
  constexpr const char* op = "optimizer_update_32bit";
  if (stepped_on_copies(state1, state2, [&](const Tensor& dense1, const OptionalTensor& dense2) {
        update_32bit(name, g, p, dense1, dense2, unorm_vec, max_unorm, param_norm, beta1, beta2,
                     beta3, alpha, eps, weight_decay, step, lr, gnorm_scale, skip_zeros);
      })) {
    return;
  }
  const Rule rule = rule_of(op, name);
  check_parameter(op, g, p, skip_zeros);
  const int64_t count = p.numel();
  const bool has_slow = rule == Rule::ademamix;
  check_state(op, "state1", state1, p, at::kFloat, (has_slow ? 2 : 1) * count);
  if (keeps_squares(rule)) {
    check_state(op, "state2", given(op, "state2", state2), p, at::kFloat, count);
  }
  if (count == 0) {
    return;
  }
  namespace kernel = kernels::optimizer_states;
  kernel::Launch launch(op);
  launch.rule(static_cast<kernel::Rule>(rule)).parameter(p).gradient(g);
  if (has_words(p)) {
    launch.own_words_of_parameter();
  }
  Tensor mean = state1, slow, direction;
  if (has_slow) {
    mean = state1.view({2, count}).select(0, 0);
    slow = state1.view({2, count}).select(0, 1);
    launch.slow(slow);
  }
  launch.mean(mean);
  if (keeps_squares(rule)) {
    launch.square(*state2);
  }
  // As bitsandbytes on the CPU, where these rules alone bound the norm of a step.
  const bool is_bounded =
      max_unorm > 0 && (rule == Rule::adam || rule == Rule::momentum || rule == Rule::rmsprop);
  if (is_bounded) {
    direction = empty_webgpu(p.sizes(), at::kFloat, p.device());
    launch.direction(direction);
  }
  const auto params = params_of<kernel::Params>(
      rule, {beta1, beta2, beta3, alpha, eps, weight_decay, lr, gnorm_scale, step}, count);
  launch.run(params, launch.grid_of(static_cast<uint64_t>((count + 3) / 4)));
  if (is_bounded) {
    const Tensor norm = at::norm(direction);
    if (unorm_vec) {
      unorm_vec->copy_(norm.expand(unorm_vec->sizes()));
    }
    const double limit = max_unorm * param_norm;
    const Tensor scale = at::where(norm.gt(limit), norm.reciprocal().mul_(limit), 1.0);
    direction.mul_(scale);
    const Tensor stepped = p.to(at::kFloat).mul(params.decay).sub_(direction, params.rate);
    p.copy_(stepped);
  }
}

TW_LIBRARY_IMPL(bitsandbytes, PrivateUse1, m) {
  m.impl("optimizer_update_8bit_blockwise", TORCH_FN(update_8bit));
  m.impl("optimizer_update_32bit", TORCH_FN(update_32bit));
}

} // namespace
} // namespace torch_webgpu
