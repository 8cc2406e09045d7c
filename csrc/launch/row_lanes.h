// How the invocations of a workgroup share rows.
#pragma once

#include <ATen/core/TensorBase.h>

#include <cstdint>
#include <initializer_list>

#include "wgsl/target.h"

namespace torch_webgpu {

/// A kernel in which `lanes` invocations of a workgroup work on a row together.
struct RowLanes {
  uint32_t lanes_log2 = 0;
  // 1: neighbouring invocations share a row; 0: they have neighbouring rows.
  uint32_t lanes_first = 0;
  uint32_t workgroup = kWorkgroup; // its invocations

  /// For rows of `length` elements, `inner` of which lie interleaved. A row gets a lane for each
  /// `elements_per_lane` elements, as far as the workgroup reaches.
  RowLanes(uint32_t length, uint32_t inner, uint32_t elements_per_lane = 4,
           uint32_t workgroup = kWorkgroup);
  /// Whether a row of that length better has one lane, which needs no barriers (`alone` of
  /// ops/norm/row.wgsl).
  static bool suits_one(uint32_t length, const ShaderTarget& target);
  static RowLanes one() { return {1, 1}; }
  uint32_t lanes() const { return 1u << lanes_log2; }
  /// Elements of a row of that length that an invocation keeps in registers: enough for the whole
  /// row if that is at most `limit`, a power of two, and at least `unit`.
  uint32_t items(uint32_t length, uint32_t unit, uint32_t limit = kMaxItems) const;
  uint64_t workgroups(uint64_t rows) const {
    return ((rows << lanes_log2) + workgroup - 1) / workgroup;
  }
  static constexpr uint32_t kWorkgroup = 256;
  static constexpr uint32_t kMaxItems = 32;
};

// Kernels that read rows in vectors of 16 bytes (ops/norm/vectors.wgsl).

inline constexpr int64_t kVectorBytes = 16;

/// Whether `rows` contiguous rows of `length` elements each consist of aligned vectors, at most
/// `max_vectors` in a row. `operands` are the others that are read in vectors:
/// they must have y's dtype, and undefined ones are ignored.
bool are_row_vectors(int64_t rows, int64_t length, const at::TensorBase& y,
                     std::initializer_list<const at::TensorBase*> operands, uint32_t max_vectors);

/// The constant `dtype` of such a kernel.
template <class Dtype>
Dtype vector_dtype(const at::TensorBase& tensor) {
  return tensor.scalar_type() == at::kFloat  ? Dtype::f32
         : tensor.scalar_type() == at::kHalf ? Dtype::f16
                                             : Dtype::bf16;
}

} // namespace torch_webgpu
