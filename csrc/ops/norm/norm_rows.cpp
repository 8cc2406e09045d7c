// The row kernels of layer and group normalization, and the sums of all normalization layers.
#include "backend/tensor.h"
#include "ops/norm/norm.h"

#include <ATen/TensorIterator.h>

#include <algorithm>
#include <array>
#include <bit>

#include "launch/dtypes.h"
#include "launch/kernel_args.h"
#include "ops/reduce/reduce.h"

namespace torch_webgpu {

bool are_native_floats(std::initializer_list<at::Tensor> tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& t) { return !t.defined() || is_native_float(t); });
}

at::Tensor packed(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && tensor->defined() ? tensor->contiguous() : at::Tensor();
}

std::string put_pairs(at::ScalarType dtype, uint32_t slot) {
  const DType type = *native_dtype(dtype);
  return "const unit = 2u;\n"
         "fn put(i: u32, a: f32, b: f32) {\n  b" +
         std::to_string(slot) + "[(p.y_at + i) / 2u] = " + to_word(type, "a") + " | (" +
         to_word(type, "b") + " << 16u);\n}";
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

constexpr PipelineFamily kForward = PipelineFamily::kNorm;
constexpr PipelineFamily kBackward = PipelineFamily::kNormBackward;
constexpr uint32_t kElementsPerLane = 4;
constexpr uint32_t kMaxItems = 32; // registers for a row's elements

struct ForwardParams {
  uint32_t rows, length, lanes_log2, groups, channels, inner;
  float eps;
  uint32_t y_at, mean_at, rstd_at, x_at, w_at, b_at;
};

struct BackwardParams {
  uint32_t rows, length, lanes_log2, groups, channels, inner;
  uint32_t y_at, g_at, x_at, mean_at, rstd_at, w_at;
};

template <class Params>
RowLanes set_rows(Params& params, const Rows& rows, const char* op) {
  TORCH_CHECK_NOT_IMPLEMENTED(rows.rows * rows.length < int64_t{1} << 31, op,
                              "(): more than 2^31 elements");
  params.rows = static_cast<uint32_t>(rows.rows);
  params.length = static_cast<uint32_t>(rows.length);
  params.groups = static_cast<uint32_t>(rows.groups);
  params.channels = static_cast<uint32_t>(rows.channels);
  params.inner = static_cast<uint32_t>(rows.inner);
  const RowLanes lanes(params.length, 1, kElementsPerLane);
  params.lanes_log2 = lanes.lanes_log2;
  return lanes;
}

bool stores_pairs(const Tensor& y, const Rows& rows) {
  return y.itemsize() == 2 && rows.length % 2 == 0 && byte_offset(y) % 4 == 0;
}

uint32_t items_of(const Rows& rows, const RowLanes& lanes, bool pairs, uint32_t most) {
  const auto each = (static_cast<uint32_t>(rows.length) + lanes.lanes() - 1) / lanes.lanes();
  return std::clamp(std::bit_ceil(each), pairs ? 2u : 1u, most);
}

} // namespace

void normalize_rows(const char* op, const Rows& rows, const Tensor& x, const Tensor& weight,
                    const Tensor& bias, double eps, const Tensor& y, const Tensor& mean,
                    const Tensor& rstd) {
  ForwardParams params{};
  const RowLanes lanes = set_rows(params, rows, op);
  params.eps = static_cast<float>(eps);
  const bool pairs = stores_pairs(y, rows);
  const uint32_t items = items_of(rows, lanes, pairs, kMaxItems);
  KernelArgs args(op);
  params.y_at = args.add("y", y, true, pairs);
  params.mean_at = args.add("mean", mean, true);
  params.rstd_at = args.add("rstd", rstd, true);
  params.x_at = args.add("x", x);
  if (weight.defined()) {
    params.w_at = args.add("w", weight);
  }
  if (bias.defined()) {
    params.b_at = args.add("b", bias);
  }
  const uint64_t variant = static_cast<uint64_t>(items) | static_cast<uint64_t>(pairs) << 8 |
                           static_cast<uint64_t>(weight.defined()) << 9 |
                           static_cast<uint64_t>(bias.defined()) << 10;
  args.dispatch(kForward, variant, "norm", params,
                stream().grid_1d(lanes.workgroups(params.rows), 1), [&](KernelSource& source) {
                  source.hooks.emplace_back("items",
                                            "const items = " + std::to_string(items) + "u;");
                  source.hooks.emplace_back(
                      "affine", std::string("fn affine(channel: u32, v: f32) -> f32 { return v") +
                                    (weight.defined() ? " * load_w(p.w_at + channel)" : "") +
                                    (bias.defined() ? " + load_b(p.b_at + channel)" : "") + "; }");
                  if (pairs) {
                    source.hooks.emplace_back("put", put_pairs(y.scalar_type(), args.slot(0)));
                  }
                });
}

void gradient_of_rows(const char* op, const Rows& rows, const Tensor& gradient, const Tensor& x,
                      const Tensor& mean, const Tensor& rstd, const Tensor& weight,
                      const Tensor& y) {
  BackwardParams params{};
  const RowLanes lanes = set_rows(params, rows, op);
  const bool pairs = stores_pairs(y, rows);
  const uint32_t items = items_of(rows, lanes, pairs, kMaxItems / 2);
  KernelArgs args(op);
  params.y_at = args.add("y", y, true, pairs);
  params.g_at = args.add("g", gradient);
  params.x_at = args.add("x", x);
  params.mean_at = args.add("mean", mean);
  params.rstd_at = args.add("rstd", rstd);
  if (weight.defined()) {
    params.w_at = args.add("w", weight);
  }
  const uint64_t variant = static_cast<uint64_t>(items) | static_cast<uint64_t>(pairs) << 8 |
                           static_cast<uint64_t>(weight.defined()) << 9;
  args.dispatch(
      kBackward, variant, "norm_backward", params,
      stream().grid_1d(lanes.workgroups(params.rows), 1), [&](KernelSource& source) {
        source.hooks.emplace_back("items", "const items = " + std::to_string(items) + "u;");
        if (weight.defined()) {
          source.hooks.emplace_back(
              "affine", "fn scale(channel: u32) -> f32 { return load_w(p.w_at + channel); }");
        }
        if (pairs) {
          source.hooks.emplace_back("put", put_pairs(y.scalar_type(), args.slot(0)));
        }
      });
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
