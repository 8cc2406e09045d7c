// Products with, and values of, weights that are packed in blocks (packed.wgsl).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "kernels/packed_mv.h"
#include "wgsl/dtype.h"

namespace torch_webgpu {

struct Buffer;

using Packing = kernels::packed_mv::Packing;

/// Elements of a buffer, in bytes. They stay valid as long as the tensor that they are of.
struct PackedPart {
  const Buffer* buffer = nullptr;
  uint64_t begin = 0;
  uint64_t end = 0;
  DType dtype = DType::kF32;

  PackedPart() = default;
  PackedPart(const at::TensorBase& tensor, DType dtype);
  /// Bytes [begin, end) of the tensor.
  PackedPart(const at::TensorBase& tensor, uint64_t begin, uint64_t end, DType dtype);
  explicit operator bool() const { return buffer != nullptr; }
};

/// A matrix of weights. The parts are packed.wgsl's operands of these names.
struct PackedWeights {
  Packing packing{};
  uint32_t block = 0; // weights that share a scale
  PackedPart w, scale, sub, table, scale_table, scale_scale, scale_offset;
};

/// `count` weights from `first` on, a multiple of 4, as the elements of `out`, which is contiguous.
/// `owns_words`: nothing else lies in the words of `out`.
void unpack(const char* op, const PackedWeights& weights, int64_t first, const at::Tensor& out,
            bool owns_words);

/// x @ weights^T + bias for a matrix of n rows, as x's dtype; x has any number of dimensions.
at::Tensor packed_linear(const char* op, const at::Tensor& x, const PackedWeights& weights,
                         int64_t n, const std::optional<at::Tensor>& bias);

} // namespace torch_webgpu
