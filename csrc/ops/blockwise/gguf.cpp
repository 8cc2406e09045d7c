// Operators for the weights of GGUF files, which stay packed in memory: torch_webgpu::gguf_linear,
// gguf_dequantize and gguf_embedding. torch_webgpu/gguf.py reads files and lays the bytes out.
#include <ATen/core/Tensor.h>
#include <ATen/ops/index_select.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "backend/empty.h"
#include "backend/registration.h"
#include "backend/tensor.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "ops/blockwise/packed.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// Of a block: weights, and bytes of its codes, of the scales of its parts, and of its own scales.
// A matrix has the codes of all blocks first, then the scales of all parts, then those of blocks.
struct Format {
  std::string_view name;
  Packing packing;
  int64_t weights, codes, sub, scales;
};
constexpr std::array kFormats = {
    Format{"Q4_0", Packing::q4_0, 32, 16, 0, 2},
    Format{"Q8_0", Packing::q8_0, 32, 32, 0, 2},
    Format{"Q4_K", Packing::q4_k, 256, 128, 12, 4},
    Format{"Q6_K", Packing::q6_k, 256, 192, 16, 2},
};

const Format& format_of(const char* op, std::string_view name) {
  for (const Format& format : kFormats) {
    if (format.name == name) {
      return format;
    }
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, op, "(): there are no kernels for type '", name,
                              "'; there are Q4_0, Q8_0, Q4_K and Q6_K");
}

// The blocks of a matrix.
int64_t checked_blocks(const char* op, const Format& format, const Tensor& weight, int64_t rows,
                       int64_t columns) {
  check_dtype(weight, at::kByte);
  TORCH_CHECK(weight.dim() == 1 && weight.is_contiguous(), op,
              ": expected weight to be bytes side by side, got sizes ", weight.sizes());
  TORCH_CHECK(rows >= 0 && columns >= 0 && columns % format.weights == 0, op, ": rows of ", columns,
              " weights are no whole blocks of ", format.weights);
  const int64_t blocks = rows * (columns / format.weights);
  const int64_t bytes = blocks * (format.codes + format.sub + format.scales);
  TORCH_CHECK(weight.numel() == bytes, op, ": ", rows, " rows of ", columns, " weights have ",
              bytes, " bytes as ", format.name, ", but weight has ", weight.numel());
  TORCH_CHECK(byte_offset(weight) % 4 == 0, op, ": weight starts in the middle of a word");
  return blocks;
}

PackedWeights weights_of(const char* op, const Format& format, const Tensor& weight, int64_t rows,
                         int64_t columns) {
  const auto blocks = static_cast<uint64_t>(checked_blocks(op, format, weight, rows, columns));
  const uint64_t sub = blocks * static_cast<uint64_t>(format.codes);
  const uint64_t scales = sub + blocks * static_cast<uint64_t>(format.sub);
  PackedWeights weights;
  weights.packing = format.packing;
  weights.block = static_cast<uint32_t>(format.weights);
  weights.w = PackedPart(weight, 0, sub, DType::kBits32);
  if (format.sub != 0) {
    weights.sub = PackedPart(weight, sub, scales, DType::kBits32);
  }
  weights.scale = PackedPart(weight, scales, weight.numel(), DType::kF16);
  return weights;
}

void check_float(const char* op, const char* name, at::ScalarType type) {
  TORCH_CHECK(is_native_float(type), op, ": expected ", name,
              " to be float32, float16 or bfloat16, got ", type);
}

Tensor gguf_linear(const Tensor& x, const Tensor& weight, std::string_view type, int64_t rows,
                   const OptionalTensor& bias) {
  constexpr const char* op = "gguf_linear";
  check_same_device(op, {{x, "x"}, {weight, "weight"}});
  check_float(op, "x", x.scalar_type());
  TORCH_CHECK(x.dim() >= 1, op, ": expected x to have rows, got a number");
  OptionalTensor addend;
  if (bias && bias->defined()) {
    check_same_device(op, {{x, "x"}, {*bias, "bias"}});
    TORCH_CHECK(bias->dim() == 1 && bias->size(0) == rows, op, ": expected bias to have ", rows,
                " elements, got sizes ", bias->sizes());
    check_dtype(*bias, x.scalar_type());
    addend = bias->contiguous();
  }
  const PackedWeights weights = weights_of(op, format_of(op, type), weight, rows, x.size(-1));
  return packed_linear(op, x, weights, rows, addend);
}

Tensor gguf_dequantize(const Tensor& weight, std::string_view type, int64_t rows, int64_t columns,
                       at::ScalarType dtype) {
  constexpr const char* op = "gguf_dequantize";
  check_float(op, "dtype", dtype);
  const PackedWeights weights = weights_of(op, format_of(op, type), weight, rows, columns);
  Tensor out = empty_webgpu({rows, columns}, dtype, weight.device());
  unpack(op, weights, 0, out, /*owns_words=*/true);
  return out;
}

// The rows' bytes are gathered, which checks the indices, and then unpacked.
Tensor gguf_embedding(const Tensor& indices, const Tensor& weight, std::string_view type,
                      int64_t rows, int64_t columns, at::ScalarType dtype) {
  constexpr const char* op = "gguf_embedding";
  check_same_device(op, {{weight, "weight"}, {indices, "indices"}});
  check_float(op, "dtype", dtype);
  const Format& format = format_of(op, type);
  const int64_t blocks = checked_blocks(op, format, weight, rows, columns);
  const Tensor index = indices.reshape({-1});
  int64_t begin = 0;
  const auto gather = [&](int64_t block_bytes) {
    const int64_t bytes = blocks * block_bytes;
    const Tensor plane = weight.narrow(0, begin, bytes);
    begin += bytes;
    const int64_t row = columns / format.weights * block_bytes;
    // Whole words where there are some, for they move faster.
    return at::index_select(row % 4 == 0 ? plane.view(at::kInt).view({rows, row / 4})
                                         : plane.view({rows, row}),
                            0, index);
  };
  std::vector<int64_t> sizes = indices.sizes().vec();
  sizes.push_back(columns);
  Tensor out = empty_webgpu(sizes, dtype, weight.device());
  const Tensor codes = gather(format.codes);
  const Tensor sub = format.sub == 0 ? Tensor() : gather(format.sub);
  const Tensor scales = gather(format.scales);
  if (out.numel() == 0) {
    return out;
  }
  PackedWeights weights;
  weights.packing = format.packing;
  weights.block = static_cast<uint32_t>(format.weights);
  weights.w = PackedPart(codes, DType::kBits32);
  if (sub.defined()) {
    weights.sub = PackedPart(sub, DType::kBits32);
  }
  weights.scale = PackedPart(scales, DType::kF16);
  unpack(op, weights, 0, out, /*owns_words=*/true);
  return out;
}

TORCH_LIBRARY(torch_webgpu, m) {
  m.def("gguf_linear(Tensor x, Tensor weight, str type, int rows, Tensor? bias=None) -> Tensor");
  m.def("gguf_dequantize(Tensor weight, str type, int rows, int columns, ScalarType dtype) -> "
        "Tensor");
  m.def("gguf_embedding(Tensor indices, Tensor weight, str type, int rows, int columns, "
        "ScalarType dtype) -> Tensor");
}

TW_LIBRARY_IMPL(torch_webgpu, PrivateUse1, m) {
  m.impl("gguf_linear", TORCH_FN(gguf_linear));
  m.impl("gguf_dequantize", TORCH_FN(gguf_dequantize));
  m.impl("gguf_embedding", TORCH_FN(gguf_embedding));
}

} // namespace
} // namespace torch_webgpu
