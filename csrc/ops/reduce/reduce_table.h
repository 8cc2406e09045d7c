// The rows of rows.yaml, and what they put into the regions of reduce.wgsl.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/reduce.h"
#include "tables/reduce.h"
#include "wgsl/dtype.h"

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
  bool indexed = false;
  std::array<ReduceTexts, 4> texts{}; // by Kind
  uint32_t num_results() const { return results[1] == ReduceResult::kNone ? 1 : 2; }
  bool has(Kind kind) const { return kind <= Kind::kComplex && !at(kind).accumulator.empty(); }
  const ReduceTexts& at(Kind kind) const { return texts[static_cast<size_t>(kind)]; }
};

using ReduceTable = std::array<ReduceRow, static_cast<size_t>(ReduceOp::kCount)>;
extern const ReduceTable kReduceRows;

inline const ReduceRow& row(ReduceOp op) { return kReduceRows[static_cast<size_t>(op)]; }

inline kernels::reduce::Element reduce_element(Kind kind) {
  using kernels::reduce::Element;
  static_assert(static_cast<int>(Kind::kInt) == static_cast<int>(Element::ints) &&
                static_cast<int>(Kind::kComplex) == static_cast<int>(Element::complexes));
  return static_cast<Element>(kind);
}

/// The row's texts for elements of that kind and results of those dtypes, none for partial results.
/// Raises kNotImplemented if the row has no such kind.
kernels::reduce::Regions reduce_regions(ReduceOp op, Kind kind, std::span<const DType> results);

} // namespace torch_webgpu
