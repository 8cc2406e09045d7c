// The operators that flex_attention of compiled programs becomes (torch_webgpu/inductor/flex.py).
#include <ATen/TensorUtils.h>
#include <ATen/ceil_div.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <array>
#include <limits>

#include "backend/registration.h"
#include "launch/common.h"
#include "ops/attention/attention.h"
#include "ops/attention/score_program.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

constexpr const char* kOp = "flex_attention";

// Raises an error if the arguments do not fit the queries and keys.
ScoreProgram program_of(const Tensor& query, const Tensor& key, at::TensorList captured,
                        at::IntArrayRef numbers, const std::optional<Tensor>& blocks,
                        int64_t block_queries, int64_t block_keys, const ScoreTexts& texts) {
  ScoreProgram program;
  program.text = ScoreProgram::number_of(texts);
  program.changes_gradients = !texts.gradient.empty();
  TORCH_CHECK(captured.size() <= ScoreProgram::kCaptured &&
                  numbers.size() <= ScoreProgram::kNumbers,
              kOp, "(): more than ", ScoreProgram::kCaptured, " captured tensors or ",
              ScoreProgram::kNumbers, " numbers");
  for (size_t i = 0; i < captured.size(); ++i) {
    const Tensor& tensor = captured[i];
    TORCH_CHECK(tensor.device() == query.device(), kOp, "(): a captured tensor is on ",
                tensor.device(), ", the query on ", query.device());
    TORCH_CHECK(tensor.dim() <= ScoreProgram::kMostDims && tensor.numel() > 0, kOp,
                "(): a captured tensor is empty or has more than ", ScoreProgram::kMostDims,
                " dimensions");
    program.captured[i] = tensor;
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    TORCH_CHECK(numbers[i] >= std::numeric_limits<int32_t>::min() &&
                    numbers[i] <= std::numeric_limits<int32_t>::max(),
                kOp, "(): the number ", numbers[i], " does not fit in int32");
    program.numbers[i] = static_cast<int32_t>(numbers[i]);
  }
  if (blocks) {
    const auto repeats = [&](int64_t d) {
      return blocks->size(d) == 1 || blocks->size(d) == query.size(d);
    };
    TORCH_CHECK(blocks->dim() == 4 && blocks->scalar_type() == at::kInt && block_queries > 0 &&
                    block_keys > 0 && repeats(0) && repeats(1) &&
                    blocks->size(2) >= at::ceil_div(query.size(2), block_queries) &&
                    blocks->size(3) >= at::ceil_div(key.size(2), block_keys),
                kOp, "(): the block mask ", blocks->sizes(), " with blocks of ", block_queries,
                " x ", block_keys, " does not cover queries ", query.sizes(), " and keys ",
                key.sizes());
    program.blocks = blocks->contiguous();
    if (byte_offset(program.blocks) != 0) { // The kernels' table starts with its buffer.
      program.blocks = program.blocks.clone();
    }
    program.block_queries = block_queries;
    program.block_keys = block_keys;
  }
  return program;
}

std::tuple<Tensor, Tensor> forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                   at::TensorList captured, at::IntArrayRef numbers,
                                   const std::optional<Tensor>& blocks, int64_t block_queries,
                                   int64_t block_keys, std::string score, std::string mask,
                                   double scale) {
  const ScoreTexts texts{.score = std::move(score), .mask = std::move(mask)};
  return flex_attention(
      query, key, value,
      program_of(query, key, captured, numbers, blocks, block_queries, block_keys, texts), scale);
}

std::tuple<Tensor, Tensor, Tensor>
backward(const Tensor& grad_out, const std::optional<Tensor>& grad_lse, const Tensor& query,
         const Tensor& key, const Tensor& value, const Tensor& out, const Tensor& lse,
         at::TensorList captured, at::IntArrayRef numbers, const std::optional<Tensor>& blocks,
         int64_t block_queries, int64_t block_keys, std::string score, std::string mask,
         std::string gradient, double scale) {
  const ScoreTexts texts{
      .score = std::move(score), .mask = std::move(mask), .gradient = std::move(gradient)};
  ScoreProgram program =
      program_of(query, key, captured, numbers, blocks, block_queries, block_keys, texts);
  const std::array<int64_t, 4> sizes{query.size(0), query.size(1), query.size(2), value.size(3)};
  for (const Tensor& tensor : {out, grad_out}) {
    TORCH_CHECK(tensor.sizes() == at::IntArrayRef(sizes) &&
                    tensor.scalar_type() == query.scalar_type() &&
                    tensor.device() == query.device(),
                kOp, "(): the result, or its gradient, has another shape, dtype or device than ",
                "the queries and values give");
  }
  TORCH_CHECK(lse.sizes() == query.sizes().slice(0, 3) && lse.scalar_type() == at::kFloat &&
                  (!grad_lse || grad_lse->sizes() == lse.sizes()),
              kOp, "(): the logarithms, or their gradient, have another shape than the queries");
  // No power of two leaves room for these (README.md).
  program.changes_gradients = program.changes_gradients || grad_lse.has_value();
  return flex_attention_backward(grad_out, grad_lse, query, key, value, out, lse.contiguous(),
                                 program, scale);
}

TORCH_LIBRARY_FRAGMENT(torch_webgpu, m) {
  // captured: tensors that the texts read. numbers: what they read as p.numbers. lse: natural
  // logarithms, contiguous.
  m.def("flex_attention(Tensor query, Tensor key, Tensor value, Tensor[] captured, "
        "SymInt[] numbers, Tensor? blocks, SymInt block_queries, SymInt block_keys, str score, "
        "str mask, float scale) -> (Tensor, Tensor)");
  m.def("flex_attention_backward(Tensor grad_out, Tensor? grad_lse, Tensor query, Tensor key, "
        "Tensor value, Tensor out, Tensor lse, Tensor[] captured, SymInt[] numbers, "
        "Tensor? blocks, SymInt block_queries, SymInt block_keys, str score, str mask, "
        "str gradient, float scale) -> (Tensor, Tensor, Tensor)");
}

TW_LIBRARY_IMPL(torch_webgpu, PrivateUse1, m) {
  m.impl("flex_attention", TORCH_FN(forward));
  m.impl("flex_attention_backward", TORCH_FN(backward));
}

} // namespace
} // namespace torch_webgpu
