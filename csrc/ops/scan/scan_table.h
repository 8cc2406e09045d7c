// The rows of rows.yaml.
#pragma once

#include <array>
#include <string_view>

#include "tables/scan.h"

namespace torch_webgpu {

/// What a row says for one kind of element; empty if the op has no such kind.
struct ScanTexts {
  std::string_view identity{};
  std::string_view combine{};
};

/// A row of rows.yaml, which describes the fields.
struct ScanRow {
  const char* name = nullptr;
  bool indexed = false;
  std::array<ScanTexts, 4> texts{}; // by Kind
};

using ScanTable = std::array<ScanRow, static_cast<size_t>(ScanOp::kCount)>;
extern const ScanTable kScanRows;

inline const ScanRow& row(ScanOp op) { return kScanRows[static_cast<size_t>(op)]; }

} // namespace torch_webgpu
