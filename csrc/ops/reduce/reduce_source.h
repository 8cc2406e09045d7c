// The generator of reduction kernels: from a row of rows.yaml and a description of the operands to
// WGSL.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "runtime/pipeline.h"
#include "tables/reduce.h"
#include "wgsl/dtype.h"
#include "wgsl/kernel_source.h"

namespace torch_webgpu {

enum class ReduceResult : uint8_t { kNone, kSame, kReal, kIndex };

/// What a row says for one kind of element; all empty if the op has no such kind.
struct ReduceTexts {
  std::string_view accumulator;
  uint32_t accumulator_bytes = 0; // as an element of an array in a storage buffer
  std::string_view identity;
  std::string_view lift;
  std::string_view combine;
  std::string_view finish;
  std::string_view second;
};

/// A row of rows.yaml, which describes the fields.
struct ReduceRow {
  std::string_view name;
  uint32_t num_inputs = 1;
  std::array<ReduceResult, 2> results{};
  std::array<ReduceTexts, 4> texts{}; // by Kind
  uint32_t num_results() const { return results[1] == ReduceResult::kNone ? 1 : 2; }
  bool has(Kind kind) const { return !at(kind).accumulator.empty(); }
  const ReduceTexts& at(Kind kind) const { return texts[static_cast<size_t>(kind)]; }
};

using ReduceTable = std::array<ReduceRow, static_cast<size_t>(ReduceOp::kCount)>;
extern const ReduceTable kReduceRows;

inline const ReduceRow& row(ReduceOp op) { return kReduceRows[static_cast<size_t>(op)]; }

inline constexpr uint32_t kReduceMaxInputs = 4;
inline constexpr uint32_t kReduceMaxDims = 14;
inline constexpr uint32_t kReduceWorkgroup = 256;

/// Which part of the work a dispatch does.
enum class ReduceStage : uint8_t {
  kWhole,   // elements to results
  kPartial, // elements to partial results: binding 0 the elements, 1 the partial results
  kFinal    // partial results, bound last, to results
};

struct ReduceVariant {
  ReduceOp op{};
  ReduceStage stage = ReduceStage::kWhole;
  uint32_t num_inputs = 1; // 1, or 4 for rows whose lift takes x, w, m and r
  uint32_t num_outputs = 1;
  std::array<DType, kReduceMaxInputs> inputs{};
  std::array<DType, 2> outputs{};
  // Of the outputs, then of the inputs from [num_outputs] on.
  std::array<uint8_t, 2 + kReduceMaxInputs> slots{};
  // The reduced elements are contiguous, and read in vectors of 16 bytes. Needs a slot of its own.
  bool vectors = false;
  uint32_t inner_rank = 1; // 1, 2, or 3 for any
  SlotWindows windows;     // of the inputs' slots; kPartial without vectors only

  PipelineKey key() const;
};

/// The parameters of reduce.wgsl.
struct ReduceParams {
  uint32_t results = 0;
  uint32_t reduced = 0;
  uint32_t count = 0;
  uint32_t splits = 1;
  uint32_t chunk = 0;
  uint32_t first_split = 0;
  uint32_t splits_here = 1;
  uint32_t lanes_log2 = 0;
  uint32_t lanes_first = 0;
  uint32_t outer_rank = 0;
  uint32_t inner_rank = 0;
  uint32_t x_at = 0;
  uint32_t y_at = 0;
  uint32_t z_at = 0;
  std::array<uint32_t, 2> unused{};
  std::array<uint32_t, 4> scalars{};
  std::array<uint32_t, 4> more_at{};
  std::array<std::array<uint32_t, 4>, kReduceMaxDims> outer{};
  std::array<std::array<uint32_t, 4>, kReduceMaxDims> inner{};
  std::array<std::array<uint32_t, 4>, kReduceMaxDims> outer_more{};
  std::array<std::array<uint32_t, 4>, kReduceMaxDims> inner_more{};
};

/// The shader. Raises kRuntime if the row has nothing for the input's kind.
PipelineSpec reduce_source(const ReduceVariant& variant);

} // namespace torch_webgpu
