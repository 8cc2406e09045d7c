// Operators of bitsandbytes: quantization in blocks of 4 and 8 bits, products with 4-bit weights,
// and products of 8-bit matrices. The library declares them when it is imported; the dispatcher
// keeps kernels of operators that are not declared yet.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_int_mm.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/any.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/nonzero.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <tuple>

#include "backend/empty.h"
#include "backend/registration.h"
#include "backend/tensor.h"
#include "kernels/block_absmax.h"
#include "kernels/int8_rows.h"
#include "kernels/int8_scale.h"
#include "kernels/quantize_blocks.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "ops/blockwise/packed.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

constexpr int64_t kNestedBlock = 256; // scales that share a scale of their own

void check_float(const char* op, const char* name, at::ScalarType type) {
  TORCH_CHECK(is_native_float(type), op, ": expected ", name,
              " to be float32, float16 or bfloat16, got ", type);
}

void check_float32(const char* op, const char* name, const Tensor& tensor) {
  TORCH_CHECK(tensor.scalar_type() == at::kFloat, op, ": expected ", name, " to be float32, got ",
              tensor.scalar_type());
}

void check_block(const char* op, int64_t block) {
  TORCH_CHECK(block > 0 && block <= std::numeric_limits<int32_t>::max(), op,
              ": blocksize must be positive, got ", block);
}

Packing packing_of(const char* op, std::string_view quant_type, int64_t block) {
  TORCH_CHECK(block >= 32 && block <= 4096 && (block & (block - 1)) == 0, op,
              ": invalid blocksize ", block, "; there are 32, 64, 128, ... 4096");
  TORCH_CHECK(quant_type == "nf4" || quant_type == "fp4", op,
              ": quant_type must be 'nf4' or 'fp4', got '", quant_type, "'");
  return quant_type == "nf4" ? Packing::nf4 : Packing::fp4;
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The first `bytes` bytes of words, as a tensor of one dimension.
Tensor bytes_of(const Tensor& words, int64_t bytes) {
  return words.view(at::kByte).narrow(0, 0, bytes);
}

// Weights as bytes that start at a word.
Tensor as_words(const Tensor& packed) {
  const Tensor dense = packed.contiguous();
  return byte_offset(dense) % 4 == 0 ? dense : dense.clone();
}

// ---- Quantization

// The codes in words, and the blocks' scales.
std::tuple<Tensor, Tensor> quantize(const char* op, const Tensor& a, Packing packing, int64_t block,
                                    const OptionalTensor& table) {
  check_float(op, "A", a.scalar_type());
  const Tensor x = a.contiguous();
  const int64_t count = x.numel();
  TORCH_CHECK_NOT_IMPLEMENTED(count < std::numeric_limits<int32_t>::max(), op, "(): ", count,
                              " elements, more than kernels count");
  const int64_t per_word = packing == Packing::bytes ? 4 : 8;
  Tensor codes = empty_webgpu({ceil_div(count, per_word)}, at::kInt, x.device());
  Tensor absmax = empty_webgpu({ceil_div(count, block)}, at::kFloat, x.device());
  if (count == 0) {
    return {codes, absmax};
  }
  kernels::block_absmax::Launch absmaxima(op);
  absmaxima.absmax(absmax).x(x);
  absmaxima.run({.count = static_cast<uint32_t>(count), .block = static_cast<uint32_t>(block)},
                absmaxima.grid_of_groups(static_cast<uint64_t>(absmax.numel())));
  namespace kernel = kernels::quantize_blocks;
  kernel::Launch launch(op);
  launch.codes_as(DType::kBits32, codes).absmax(absmax).x(x);
  launch.packing(static_cast<kernel::Packing>(packing));
  if (table) {
    launch.table(*table);
  }
  launch.run({.count = static_cast<uint32_t>(count), .block = static_cast<uint32_t>(block)},
             launch.grid_of(static_cast<uint64_t>(codes.numel())));
  return {codes, absmax};
}

std::tuple<Tensor, Tensor> quantize_4bit(const Tensor& a, int64_t block, std::string_view type,
                                         at::ScalarType storage) {
  constexpr const char* op = "quantize_4bit";
  const int64_t size = static_cast<int64_t>(c10::elementSize(storage));
  const int64_t bytes = ceil_div(a.numel(), 2);
  TORCH_CHECK(bytes % size == 0, op, ": ", bytes, " bytes of weights are no whole elements of ",
              storage);
  auto [codes, absmax] = quantize(op, a, packing_of(op, type, block), block, std::nullopt);
  return {bytes_of(codes, bytes).view(storage).unsqueeze(1), absmax};
}

// A table of 256 values for kernels.
Tensor table_of(const char* op, const Tensor& code) {
  check_float32(op, "code", code);
  TORCH_CHECK(code.numel() == 256, op, ": expected code to have 256 values, got ", code.numel());
  return code.contiguous();
}

std::tuple<Tensor, Tensor> quantize_blockwise(const Tensor& a, const Tensor& code, int64_t block) {
  constexpr const char* op = "quantize_blockwise";
  check_same_device(op, {{a, "A"}, {code, "code"}});
  check_block(op, block);
  auto [codes, absmax] = quantize(op, a, Packing::bytes, block, table_of(op, code));
  return {bytes_of(codes, a.numel()).view(a.sizes()), absmax};
}

void check_scales(const char* op, const Tensor& absmax, int64_t count, int64_t block) {
  TORCH_CHECK(absmax.numel() >= ceil_div(count, block), op, ": ", count, " elements in blocks of ",
              block, " have ", ceil_div(count, block), " scales, but absmax has ", absmax.numel());
}

// Where the result goes: `out`, or a tensor of its own if the kernel cannot write there.
template <typename Fill>
void fill(const Tensor& out, Fill&& fill) {
  if (out.is_contiguous()) {
    fill(out, /*owns_words=*/false);
    return;
  }
  Tensor dense = empty_webgpu(out.sizes(), out.scalar_type(), out.device());
  fill(dense, /*owns_words=*/true);
  out.copy_(dense);
}

void dequantize_blockwise_to(const Tensor& a, const Tensor& absmax, const Tensor& code,
                             int64_t block, const Tensor& out, bool owns_words) {
  constexpr const char* op = "dequantize_blockwise";
  check_same_device(op, {{a, "A"}, {absmax, "absmax"}, {code, "code"}, {out, "out"}});
  check_block(op, block);
  check_dtype(a, at::kByte);
  check_float32(op, "absmax", absmax);
  check_scales(op, absmax, a.numel(), block);
  const Tensor w = as_words(a);
  const Tensor scale = absmax.contiguous();
  const Tensor table = table_of(op, code);
  PackedWeights weights;
  weights.packing = Packing::bytes;
  weights.block = static_cast<uint32_t>(block);
  // Whole words, as the kernel reads them: a buffer ends with one.
  weights.w = PackedPart(w, 0, ceil_div(w.numel(), 4) * 4, DType::kBits32);
  weights.scale = PackedPart(scale, DType::kF32);
  weights.table = PackedPart(table, DType::kF32);
  unpack(op, weights, 0, out, owns_words);
}

Tensor dequantize_blockwise(const Tensor& a, const Tensor& absmax, const Tensor& code,
                            int64_t block, at::ScalarType dtype) {
  check_float("dequantize_blockwise", "dtype", dtype);
  Tensor out = empty_webgpu(a.sizes(), dtype, a.device());
  dequantize_blockwise_to(a, absmax, code, block, out, /*owns_words=*/true);
  return out;
}

void dequantize_blockwise_out(const Tensor& a, const Tensor& absmax, const Tensor& code,
                              int64_t block, at::ScalarType dtype, Tensor out) {
  constexpr const char* op = "dequantize_blockwise";
  TORCH_CHECK(out.scalar_type() == dtype, op, ": expected out.dtype == ", dtype, ", got ",
              out.scalar_type());
  TORCH_CHECK(out.sizes() == a.sizes(), op, ": expected out.shape == ", a.sizes(), ", got ",
              out.sizes());
  check_float(op, "dtype", dtype);
  fill(out, [&](const Tensor& to, bool owns_words) {
    dequantize_blockwise_to(a, absmax, code, block, to, owns_words);
  });
}

// ---- 4-bit weights

// A tensor of 4-bit weights with its scales; keeps what the parts are of.
struct Weights4 {
  PackedWeights parts;
  Tensor w, scale;

  Weights4(const char* op, const Tensor& packed, int64_t count, const Tensor& scales, int64_t block,
           std::string_view type)
      : w(as_words(packed)), scale(scales.contiguous()) {
    TORCH_CHECK(static_cast<int64_t>(w.nbytes()) * 2 >= count, op, ": ", count,
                " weights of 4 bits do not lie in ", w.nbytes(), " bytes");
    parts.packing = packing_of(op, type, block);
    check_scales(op, scale, count, block);
    parts.block = static_cast<uint32_t>(block);
    parts.w = PackedPart(w, 0, ceil_div(count, 8) * 4, DType::kBits32);
    parts.scale = PackedPart(scale, scale.scalar_type() == at::kByte ? DType::kU8 : DType::kF32);
  }
};

int64_t count_of(at::IntArrayRef shape) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    TORCH_CHECK(size >= 0, "a size of weights is negative: ", shape);
    count *= size;
  }
  return count;
}

void dequantize_4bit_to(const Tensor& a, const Tensor& absmax, int64_t block, std::string_view type,
                        const Tensor& out, bool owns_words) {
  constexpr const char* op = "dequantize_4bit";
  check_same_device(op, {{a, "A"}, {absmax, "absmax"}, {out, "out"}});
  check_float32(op, "absmax", absmax);
  const Weights4 weights(op, a, out.numel(), absmax, block, type);
  unpack(op, weights.parts, 0, out, owns_words);
}

Tensor dequantize_4bit(const Tensor& a, const Tensor& absmax, int64_t block, std::string_view type,
                       at::IntArrayRef shape, at::ScalarType dtype) {
  check_float("dequantize_4bit", "dtype", dtype);
  count_of(shape);
  Tensor out = empty_webgpu(shape, dtype, a.device());
  dequantize_4bit_to(a, absmax, block, type, out, /*owns_words=*/true);
  return out;
}

void dequantize_4bit_out(const Tensor& a, const Tensor& absmax, int64_t block,
                         std::string_view type, at::IntArrayRef shape, at::ScalarType dtype,
                         Tensor out) {
  constexpr const char* op = "dequantize_4bit";
  check_float(op, "dtype", dtype);
  TORCH_CHECK(out.scalar_type() == dtype, op, ": expected out.dtype == ", dtype, ", got ",
              out.scalar_type());
  TORCH_CHECK(out.sizes() == shape, op, ": expected out.shape == ", shape, ", got ", out.sizes());
  fill(out, [&](const Tensor& to, bool owns_words) {
    dequantize_4bit_to(a, absmax, block, type, to, owns_words);
  });
}

void check_linear(const char* op, const Tensor& a, at::IntArrayRef shape) {
  check_float(op, "A", a.scalar_type());
  TORCH_CHECK(shape.size() == 2, op, ": shapeB must be 2D [N, K], got ", shape);
  count_of(shape);
  TORCH_CHECK(a.dim() >= 1 && a.size(-1) == shape[1], op, ": A of sizes ", a.sizes(),
              " does not go with weights of sizes ", shape);
}

Tensor gemm_4bit(const Tensor& a, const Tensor& b, at::IntArrayRef shape, const Tensor& absmax,
                 int64_t block, std::string_view type, const OptionalTensor& bias,
                 const OptionalTensor& absmax_8bit, const OptionalTensor& absmax_code,
                 const OptionalTensor& absmax_offset) {
  constexpr const char* op = "gemm_4bit";
  check_same_device(op, {{a, "A"}, {b, "B"}, {absmax, "absmax"}});
  check_linear(op, a, shape);
  check_float32(op, "absmax", absmax);
  OptionalTensor addend;
  if (bias) {
    check_same_device(op, {{a, "A"}, {*bias, "bias"}});
    TORCH_CHECK(bias->dim() == 1 && bias->size(0) == shape[0], op, ": expected bias to have ",
                shape[0], " elements, got sizes ", bias->sizes());
    check_dtype(*bias, a.scalar_type());
    addend = bias->contiguous();
  }
  const int64_t count = shape[0] * shape[1];
  if (!absmax_8bit) {
    const Weights4 weights(op, b, count, absmax, block, type);
    return packed_linear(op, a, weights.parts, shape[0], addend);
  }
  TORCH_CHECK(absmax_code && absmax_offset, op,
              ": absmax_8bit needs absmax_code and absmax_offset");
  check_same_device(op, {{a, "A"},
                         {*absmax_8bit, "absmax_8bit"},
                         {*absmax_code, "absmax_code"},
                         {*absmax_offset, "absmax_offset"}});
  check_dtype(*absmax_8bit, at::kByte);
  check_float32(op, "absmax_offset", *absmax_offset);
  TORCH_CHECK(absmax_offset->numel() == 1, op, ": expected absmax_offset to be a number");
  check_scales(op, absmax, absmax_8bit->numel(), kNestedBlock);
  Weights4 weights(op, b, count, *absmax_8bit, block, type);
  const Tensor table = table_of(op, *absmax_code);
  const Tensor scales = absmax.contiguous();
  weights.parts.scale_table = PackedPart(table, DType::kF32);
  weights.parts.scale_scale = PackedPart(scales, DType::kF32);
  weights.parts.scale_offset = PackedPart(*absmax_offset, DType::kF32);
  return packed_linear(op, a, weights.parts, shape[0], addend);
}

// The values of 4-bit codes come as a tensor. The kernel reads it: to ask which of the two types it
// is would wait for the device.
Tensor gemv_4bit(const Tensor& a, const Tensor& b, at::IntArrayRef shape, const Tensor& absmax,
                 const Tensor& code, int64_t block) {
  constexpr const char* op = "gemv_4bit";
  check_same_device(op, {{a, "A"}, {b, "B"}, {absmax, "absmax"}});
  check_linear(op, a, shape);
  check_float32(op, "absmax", absmax);
  TORCH_CHECK(code.numel() == 16, op, ": expected code to have 16 values, got ", code.numel());
  check_float32(op, "code", code);
  const Tensor table = code.contiguous();
  Weights4 weights(op, b, shape[0] * shape[1], absmax, block, "nf4");
  weights.parts.table = PackedPart(table, DType::kF32);
  return packed_linear(op, a, weights.parts, shape[0], std::nullopt);
}

void gemv_4bit_out(const Tensor& a, const Tensor& b, at::IntArrayRef shape, const Tensor& absmax,
                   const Tensor& code, int64_t block, Tensor out) {
  const Tensor result = gemv_4bit(a, b, shape, absmax, code, block);
  TORCH_CHECK(out.sizes() == result.sizes(), "gemv_4bit: expected out.shape == ", result.sizes(),
              ", got ", out.sizes());
  check_dtype(out, result.scalar_type());
  out.copy_(result);
}

// ---- 8-bit matrices

// Rows of `a` as integers and their scales. `skipped`: columns that are zeros.
std::tuple<Tensor, Tensor> quantize_rows(const char* op, const Tensor& a, double threshold,
                                         const OptionalTensor& skipped) {
  check_float(op, "A", a.scalar_type());
  TORCH_CHECK(a.dim() >= 1, op, ": expected A to have rows, got a number");
  const Tensor x = a.contiguous();
  const int64_t columns = x.size(-1);
  const int64_t rows = columns == 0 ? 0 : x.numel() / columns;
  TORCH_CHECK_NOT_IMPLEMENTED(x.numel() < std::numeric_limits<int32_t>::max(), op,
                              "(): ", x.numel(), " elements, more than kernels count");
  Tensor codes = empty_webgpu(x.sizes(), at::kChar, x.device());
  Tensor absmax = empty_webgpu({rows}, at::kFloat, x.device());
  if (x.numel() == 0) {
    return {codes, absmax};
  }
  kernels::int8_rows::Launch launch(op);
  if (columns % 4 == 0) {
    launch.codes_as(DType::kBits32, codes.view(at::kInt));
  } else {
    launch.codes(codes);
  }
  launch.absmax(absmax).x(x);
  if (skipped) {
    launch.skipped(*skipped);
  }
  launch.run({.rows = static_cast<uint32_t>(rows),
              .columns = static_cast<uint32_t>(columns),
              .threshold = static_cast<float>(threshold)},
             launch.grid_of_groups(static_cast<uint64_t>(rows)));
  return {codes, absmax};
}

// The columns that have outliers, as flags and as numbers.
std::tuple<Tensor, Tensor> outlier_columns(const Tensor& a, double threshold) {
  const Tensor flags = at::any(at::ge(at::abs(a.view({-1, a.size(-1)})), threshold), 0);
  return {flags, at::nonzero(flags).view(-1)};
}

std::tuple<Tensor, Tensor, OptionalTensor> int8_vectorwise_quant(const Tensor& a,
                                                                 double threshold) {
  constexpr const char* op = "int8_vectorwise_quant";
  check_float(op, "A", a.scalar_type());
  if (!(threshold > 0) || a.numel() == 0) {
    auto [codes, absmax] = quantize_rows(op, a, 0, std::nullopt);
    return {codes, absmax, std::nullopt};
  }
  const Tensor x = a.contiguous();
  const auto [flags, columns] = outlier_columns(x, threshold);
  // A single row has no other elements in its outliers' columns.
  const bool has_rows = x.numel() > x.size(-1);
  auto [codes, absmax] =
      quantize_rows(op, x, threshold, has_rows ? OptionalTensor(flags) : std::nullopt);
  return {codes, absmax, columns};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, OptionalTensor> int8_double_quant(const Tensor& a,
                                                                             double threshold) {
  constexpr const char* op = "int8_double_quant";
  TORCH_CHECK(a.dim() == 2, op, ": expected A to be a matrix, got ", a.dim(), " dimensions");
  auto [rows, row_absmax, columns] = int8_vectorwise_quant(a, threshold);
  auto [transposed, column_absmax] = quantize_rows(op, a.t(), threshold, std::nullopt);
  return {rows, transposed.t().contiguous(), row_absmax, column_absmax, columns};
}

Tensor int8_linear_matmul(const Tensor& a, const Tensor& b) {
  constexpr const char* op = "int8_linear_matmul";
  check_same_device(op, {{a, "A"}, {b, "B"}});
  check_dtype(a, at::kChar);
  check_dtype(b, at::kChar);
  TORCH_CHECK(a.dim() >= 1 && b.dim() == 2 && a.size(-1) == b.size(1), op, ": A of sizes ",
              a.sizes(), " does not go with B of sizes ", b.sizes());
  std::vector<int64_t> sizes = a.sizes().vec();
  sizes.back() = b.size(0);
  return at::_int_mm(a.reshape({-1, a.size(-1)}), b.t()).view(sizes);
}

void int8_linear_matmul_out(const Tensor& a, const Tensor& b, Tensor out) {
  const Tensor result = int8_linear_matmul(a, b);
  TORCH_CHECK(out.sizes() == result.sizes(),
              "int8_linear_matmul: expected out.shape == ", result.sizes(), ", got ", out.sizes());
  check_dtype(out, at::kInt);
  out.copy_(result);
}

Tensor int8_mm_dequant(const Tensor& a, const Tensor& row_stats, const Tensor& col_stats,
                       std::optional<at::ScalarType> dtype, const OptionalTensor& bias) {
  constexpr const char* op = "int8_mm_dequant";
  check_same_device(op, {{a, "A"}, {row_stats, "row_stats"}, {col_stats, "col_stats"}});
  check_dtype(a, at::kInt);
  check_float32(op, "row_stats", row_stats);
  check_float32(op, "col_stats", col_stats);
  const at::ScalarType type = dtype.value_or(at::kHalf);
  check_float(op, "dtype", type);
  TORCH_CHECK(a.dim() >= 1, op, ": expected A to be a matrix, got a number");
  const Tensor product = a.contiguous();
  const int64_t columns = a.size(-1);
  Tensor out = empty_webgpu(a.sizes(), type, a.device());
  if (out.numel() == 0) {
    return out;
  }
  const int64_t rows = a.numel() / columns;
  TORCH_CHECK(row_stats.numel() == rows && col_stats.numel() == columns, op, ": A of sizes ",
              a.sizes(), " does not go with ", row_stats.numel(), " scales of rows and ",
              col_stats.numel(), " of columns");
  const Tensor row_scale = row_stats.contiguous();
  const Tensor column_scale = col_stats.contiguous();
  kernels::int8_scale::Launch launch(op);
  launch.out(out).a(product).row_scale(row_scale).column_scale(column_scale);
  Tensor addend;
  if (bias) {
    check_same_device(op, {{a, "A"}, {*bias, "bias"}});
    check_float(op, "bias", bias->scalar_type());
    TORCH_CHECK(bias->numel() == columns, op, ": expected bias to have ", columns,
                " elements, got sizes ", bias->sizes());
    addend = bias->contiguous();
    launch.bias(addend);
  }
  launch.run(
      {.count = static_cast<uint32_t>(out.numel()), .columns = static_cast<uint32_t>(columns)},
      launch.grid_of(static_cast<uint64_t>(out.numel())));
  return out;
}

TW_LIBRARY_IMPL(bitsandbytes, PrivateUse1, m) {
  m.impl("quantize_4bit", TORCH_FN(quantize_4bit));
  m.impl("dequantize_4bit", TORCH_FN(dequantize_4bit));
  m.impl("dequantize_4bit.out", TORCH_FN(dequantize_4bit_out));
  m.impl("gemm_4bit", TORCH_FN(gemm_4bit));
  m.impl("gemv_4bit", TORCH_FN(gemv_4bit));
  m.impl("gemv_4bit.out", TORCH_FN(gemv_4bit_out));
  m.impl("quantize_blockwise", TORCH_FN(quantize_blockwise));
  m.impl("dequantize_blockwise", TORCH_FN(dequantize_blockwise));
  m.impl("dequantize_blockwise.out", TORCH_FN(dequantize_blockwise_out));
  m.impl("int8_vectorwise_quant", TORCH_FN(int8_vectorwise_quant));
  m.impl("int8_double_quant", TORCH_FN(int8_double_quant));
  m.impl("int8_linear_matmul", TORCH_FN(int8_linear_matmul));
  m.impl("int8_linear_matmul.out", TORCH_FN(int8_linear_matmul_out));
  m.impl("int8_mm_dequant", TORCH_FN(int8_mm_dequant));
}

} // namespace
} // namespace torch_webgpu
