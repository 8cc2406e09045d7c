// The generator of pointwise kernels: from a table row and a description of the operands to WGSL.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/pipeline.h"
#include "tables/pointwise.h"
#include "wgsl/dtype.h"

namespace torch_webgpu {

enum class PointwiseResult : uint8_t { kSame, kBool, kReal };

/// The row that serves an op in one dtype.
struct PointwiseForDType {
  DType dtype;
  PointwiseOp op;
};

/// The row that serves an op where the scalar argument s0 has that value.
struct PointwiseForArgument {
  double value;
  PointwiseOp op;
};

/// A row of rows.yaml, which describes the fields.
struct PointwiseRow {
  std::string_view name;
  uint32_t arity = 0;
  uint32_t num_scalars = 0; // s0, s1, ... that the expressions name
  PointwiseResult result = PointwiseResult::kSame;
  std::array<std::string_view, 7> expressions{}; // by Kind; [kBool] unused
  bool keeps_numbers = false;
  bool converts_arguments = false;
  bool any_argument = false;
  bool is_cast = false;
  bool mixed_dtypes = false;
  bool unsigned_dtypes = false;
  uint32_t bool_inputs = 0; // bit k: operand k; the output is operand 0
  std::span<const PointwiseForDType> for_dtype{};
  std::span<const PointwiseForArgument> for_argument{};

  std::string_view expression(Kind kind) const { return expressions[static_cast<size_t>(kind)]; }
};

using PointwiseTable = std::array<PointwiseRow, static_cast<size_t>(PointwiseOp::kCount)>;
extern const PointwiseTable kPointwiseRows;

inline const PointwiseRow& row(PointwiseOp op) { return kPointwiseRows[static_cast<size_t>(op)]; }

inline constexpr uint32_t kMaxPointwiseInputs = 5;
/// Names of the output and the inputs in errors; a row's expressions call the inputs so as well.
inline constexpr std::array<std::string_view, 1 + kMaxPointwiseInputs> kPointwiseOperands = {
    "out", "a", "b", "c", "d", "e"};
inline constexpr uint32_t kMaxPointwiseScalars = 4;
inline constexpr uint32_t kPointwiseWorkgroup = 256;

/// `count` vectors of `words` 32-bit words.
struct VectorShape {
  uint32_t words;
  uint32_t count;
  uint32_t bytes() const { return words * 4; }
};

/// One kernel variant. Everything here is part of the pipeline key; sizes, strides, offsets and
/// scalar values are not.
struct PointwiseVariant {
  PointwiseOp op;
  // The type the op is computed in. Its kind picks the row's expression; inputs are converted to
  // it.
  DType compute = DType::kF32;
  uint32_t num_inputs = 0;
  uint32_t num_scalars = 0;
  // [0] is the output, then the inputs.
  std::array<DType, 1 + kMaxPointwiseInputs> dtypes{};
  std::array<uint8_t, 1 + kMaxPointwiseInputs> slots{};
  // Bit k: operand k is a host scalar, passed with the parameters.
  uint32_t host_scalars = 0;
  // Number of dimensions that are walked (a rank class, see rank_class); 0 where all operands are
  // dense.
  uint32_t rank = 0;
  // Elements per invocation. If there are several, they are consecutive and moved in vectors. In
  // the row form (rank > 0) they run along dimension 0, whose size is a multiple of `lanes`.
  uint32_t lanes = 1;
  // Row form, bit k: input k has stride 0 along dimension 0, so that all lanes take one value.
  uint32_t splats = 0;
  // Scalar form: the output is dense in iteration order, so an invocation may own whole words of
  // it.
  bool dense_output = false;

  /// What tells kernels of equal dtypes and slots apart.
  uint64_t key() const;
  uint32_t elements_per_invocation() const;
  bool packs_words() const { return lanes == 1 && dense_output && info(dtypes[0]).bytes < 4; }
  /// How `lanes` elements of that many bytes are bound and moved.
  VectorShape vector_shape(uint32_t bytes) const;
};

/// Ranks are rounded up to one of a few classes, so that fewer pipelines are built; the added
/// dimensions have size 1.
uint32_t rank_class(uint32_t rank);

/// Where the host puts what in the parameter words.
struct PointwiseParams {
  explicit PointwiseParams(const PointwiseVariant& variant)
      : operands_(1 + variant.num_inputs), rank_(variant.rank), num_scalars_(variant.num_scalars) {}
  static constexpr uint32_t count() { return 0; }
  uint32_t offset(uint32_t operand) const { return 1 + operand; }
  uint32_t scalar(uint32_t index) const { return 1 + operands_ + 2 * index; }
  uint32_t host_scalar(uint32_t operand) const { return scalar(num_scalars_ + operand); }
  uint32_t size(uint32_t dim) const { return scalar(num_scalars_ + operands_) + dim; }
  uint32_t stride(uint32_t operand, uint32_t dim) const {
    return size(rank_ * (1 + operand)) + dim;
  }
  uint32_t words() const { return size(rank_ * (1 + operands_)); }

private:
  uint32_t operands_;
  uint32_t rank_;
  uint32_t num_scalars_;
};

/// The shader. Raises kRuntime if the row has no expression for the kind.
PipelineSpec pointwise_source(const PointwiseVariant& variant);

} // namespace torch_webgpu
