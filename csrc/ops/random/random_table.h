// The rows of rows.yaml.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "tables/random.h"

namespace torch_webgpu {

/// What a row's `x` is.
enum class RandomSource : uint8_t { kBits, kTensor, kNormal, kBits64, kDraws };

/// A row of rows.yaml, which describes the fields.
struct RandomRow {
  std::string_view name{};
  RandomSource source = RandomSource::kBits;
  std::string_view value{};
  std::string_view complex_refused_by{}; // empty: not refused
};

using RandomTable = std::array<RandomRow, static_cast<size_t>(RandomOp::kCount)>;
extern const RandomTable kRandomRows;

inline const RandomRow& row(RandomOp op) { return kRandomRows[static_cast<size_t>(op)]; }

} // namespace torch_webgpu
