// The shaders of the matrix product (gemm.wgsl, gemm_reduce.wgsl) for one combination of types,
// layouts and epilogue.
#pragma once

#include <array>
#include <cstdint>

#include "ops/matmul/gemm_conv.h"
#include "runtime/pipeline.h"
#include "wgsl/dtype.h"

namespace torch_webgpu {

/// How C is computed from the product: alpha * product + beta * D.
enum class GemmEpilogue : uint8_t {
  kProduct,   // alpha = 1, no D
  kScaled,    // no D
  kAdd,       // alpha = beta = 1
  kScaledAdd, // any alpha and beta
};

constexpr bool reads_d(GemmEpilogue epilogue) { return epilogue >= GemmEpilogue::kAdd; }

/// The kernels of a product.
enum class GemmKernel : uint8_t {
  kTiled,  // gemm.wgsl: every case
  kF32,    // gemm_f32.wgsl: large float32 matrices in groups of four elements
  kVector, // gemv.wgsl: one column
  kDirect, // gemm_direct.wgsl: very few rows or columns
  kReduce, // gemm_reduce.wgsl: adds the pieces of K
};

/// One kernel variant. Everything here is part of the pipeline key; sizes, strides, offsets, alpha
/// and beta are not.
struct GemmVariant {
  DType dtype = DType::kF32; // of A, B and D
  DType out = DType::kF32;   // of C: the same, or the accumulator's
  GemmEpilogue epilogue = GemmEpilogue::kProduct;
  bool d_in_c = false; // D is C's own memory
  // kF32: groups of four elements of A and B run along K; else across it.
  bool a_along_k = true;
  bool b_along_k = false;
  // Four neighbouring elements of C are whole words: no atomics for 1- and 2-byte types.
  bool packed = false;
  ConvForm conv = ConvForm::kNone;
  bool pieces = false;       // C holds the sums of the pieces of K, contiguous
  bool conv_strided = false; // the convolution's stride is not 1
  uint32_t tile = 16;        // kTiled: the K step, and a fourth of a workgroup's rows and columns

  PipelineKey key(GemmKernel kernel) const;
};

/// Parameters of the kernels, as GemmParams of lib/gemm.wgsl.
struct GemmParams {
  uint32_t m = 0, n = 0, k = 0, batch = 0;
  uint32_t tiles_m = 0, tiles_n = 0, splits = 1, k_piece = 0;
  struct Layout {
    uint32_t offset = 0, batch = 0, row = 0, column = 0;
  } a, b, c, d;
  std::array<uint32_t, 2> alpha{}, beta{};
  uint32_t a_along_k = 0, b_along_k = 0, lanes = 0, unused = 0;
  ConvParams conv{};
};

/// The type that products of `dtype` are summed in.
DType accumulator_dtype(DType dtype);

PipelineSpec gemm_source(GemmKernel kernel, const GemmVariant& variant);

/// Workgroup memory that gemm_f32.wgsl needs.
inline constexpr uint32_t kGemmF32Storage = 2 * 2 * 8 * 33 * 16;

} // namespace torch_webgpu
