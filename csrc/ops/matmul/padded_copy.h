// Copies of operands whose rows are no whole groups of 16 bytes.
#pragma once

#include <ATen/ceil_div.h>

#include <cstdint>

#include "backend/empty.h"
#include "kernels/gemm_pad.h"
#include "ops/matmul/matmul_gemm.h"

namespace torch_webgpu {

/// A copy of an operand of elements of 2 or 4 bytes. Its rows, along the direction in which
/// elements are neighbours, start at multiples of `group` elements and end in whole groups.
class PaddedCopy {
public:
  PaddedCopy(const Gemm& g, const MatrixView& view, int64_t rows, bool along_k, int64_t group)
      : given_(view), range_(view.range(g.batch, rows, g.k)), along_k_(along_k), group_(group),
        batches_(g.batches_of(view)), outer_(along_k ? rows : g.k), inner_(along_k ? g.k : rows),
        pitch_(at::ceil_div(inner_, group) * group) {}
  PaddedCopy(const PaddedCopy&) = delete;

  /// Copies. The view, which has strides across K and along K, holds as long as this object.
  MatrixView make(const char* op) {
    namespace kernel = kernels::gemm_pad;
    const at::Tensor& from = *given_.tensor;
    tensor_ = empty_webgpu({batches_, outer_, pitch_}, from.scalar_type(), from.device());
    kernel::Launch launch(op);
    launch.out_as(DType::kBits128, tensor_);
    launch.a_range(range_.buffer, range_.begin, range_.end,
                   from.element_size() == 2 ? DType::kBits16 : DType::kBits32);
    const auto u32 = [](int64_t value) { return static_cast<uint32_t>(value); };
    launch.run({.batches = u32(batches_),
                .rows = u32(outer_),
                .count = u32(inner_),
                .groups = u32(pitch_ / group_),
                .a_batch = u32(given_.batch),
                .a_row = u32(along_k_ ? given_.row : given_.column),
                .a_element = u32(along_k_ ? given_.column : given_.row)});
    return {.tensor = &tensor_,
            .batch = batches_ > 1 ? outer_ * pitch_ : 0,
            .row = along_k_ ? pitch_ : 1,
            .column = along_k_ ? 1 : pitch_,
            .reach = tensor_.numel() - 1,
            .padded = true};
  }

private:
  const MatrixView given_;
  const MatrixView::Range range_;
  const bool along_k_;
  const int64_t group_, batches_, outer_, inner_, pitch_;
  at::Tensor tensor_;
};

} // namespace torch_webgpu
